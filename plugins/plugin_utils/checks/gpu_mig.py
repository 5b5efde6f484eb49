# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""GPUs are divided into what they can be divided into."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_matrix import mig
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.entry import Entry, entries
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.newcomer import concerned
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.values import Rejected

COUNT = "nvidia_health_gpus_count"
LAYOUT, LAYOUTS, MODEL = "nvidia_mig_layout", "nvidia_mig_layouts", "nvidia_driver_model"


def check_written(draft: Draft) -> None:
    """Each layout has a name and can be had of some GPU, whether a host has it or not."""
    if not draft.writer(LAYOUTS):
        return
    used = {str(host.values.get(LAYOUT)) for host in concerned(draft, "gpu", LAYOUT)}
    seen: dict[tuple[str, object], str] = {}
    for entry in entries(draft, LAYOUTS):
        # Of a layout that hosts have, everything is said for their GPUs.
        if entry.text("name") in used:
            continue
        gpus = entry.value.get("gpus")
        for gpu in (gpus if isinstance(gpus, list) else ()) or (mig.OTHERS,):
            other = seen.setdefault((entry.text("name"), gpu), entry.path)
            about = "all other GPUs" if gpu == mig.OTHERS else f"GPU {gpu}"
            if other != entry.path or (isinstance(gpus, list) and gpus.count(gpu) > 1):
                entry.problem(
                    "gpus", f"{about} of {entry.text('name')} is there twice, as in {other}", "write it once"
                )
                break
        instances = entry.value.get("instances")
        if not isinstance(instances, list) or not all(isinstance(name, str) for name in instances):
            continue  # It has been named as of another type.
        if not mig.fitting(instances):
            remedy = f"write profiles of one of {', '.join(mig.models())}, as nvidia-smi mig -lgip lists them"
            entry.problem("instances", f"no GPU can be divided into {', '.join(instances)}", remedy)


def check_layouts(draft: Draft) -> None:
    """Each host's layout is there, and fits the host's GPUs; each problem is named once."""
    hosts = [host for host in concerned(draft, "gpu", LAYOUT) if host.values.get(LAYOUT)]
    if not hosts:
        return
    writer = draft.writer(LAYOUTS)
    if writer and (
        isinstance(writer.settings[LAYOUTS].value, Mapping)
        or writer.values.get(LAYOUTS) != draft.site_value(LAYOUTS)
    ):
        return  # They were named as no list, or as written for some hosts: the others know none of them.
    known: dict[str, list[Entry]] = {}
    for entry in entries(draft, LAYOUTS):
        known.setdefault(entry.text("name"), []).append(entry)
    judged: set[tuple[str, ...]] = set()
    for host in hosts:
        name, model = str(host.values[LAYOUT]), str(host.values.get(MODEL) or "")
        place = draft.place(host, LAYOUT)
        if (name, model, "" if name in known and model else str(place)) in judged:
            continue
        judged.add((name, model, "" if name in known and model else str(place)))
        if name not in known:
            near = nearest(name, tuple(known))
            remedy = f"write {near}" if near else f"add it to {LAYOUTS}"
            draft.problems.add(place, LAYOUT, f"there is no layout {name} ({host.name})", remedy)
        elif not model:
            remedy = f"write {MODEL} beside it"
            draft.problems.add(place, LAYOUT, f"which GPUs it divides is not known ({host.name})", remedy)
        elif model not in mig.models():
            remedy = f"known are {', '.join(mig.models())}"
            message = f"how {model} can be divided is not known ({host.name})"
            draft.problems.add(place, LAYOUT, message, remedy)
        else:
            _fits(host, model, known[name])
            _are_there(host, known[name])


def _are_there(host: HostDraft, layout: list[Entry]) -> None:
    """GPUs that a layout names are some of those that the host is said to have."""
    count = host.values.get(COUNT)
    if not isinstance(count, int) or count < 0:
        return
    for entry in layout:
        gpus = entry.value.get("gpus")
        beyond = [
            gpu for gpu in (gpus if isinstance(gpus, list) else ()) if isinstance(gpu, int) and gpu >= count
        ]
        if beyond:
            message = f"{beyond[0]} is no GPU of {host.name}, which has {count} ({COUNT})"
            entry.problem("gpus", message, f"write indexes from 0 to {count - 1}")


def _fits(host: HostDraft, model: str, layout: list[Entry]) -> None:
    sound: list[Mapping[str, object]] = []
    for entry in layout:
        instances = entry.value.get("instances")
        if not isinstance(instances, list) or not all(isinstance(name, str) for name in instances):
            continue  # It has been named as of another type.
        try:
            mig.layout(model, [*sound, entry.value])
        except Rejected as error:
            field = "gpus" if "divided twice" in error.message else "instances"
            entry.problem(field, f"{error.message} ({host.name})", error.remedy)
        else:
            sound.append(entry.value)


CHECKS = (check_written, check_layouts)
