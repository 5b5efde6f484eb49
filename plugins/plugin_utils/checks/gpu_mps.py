# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""GPUs are shared only where pods get shares, and where nothing else needs them whole."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_matrix import mig
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.newcomer import concerned
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Once

ENABLED, PODS = "nvidia_mps_enabled", "nvidia_mps_pods_count"
THREADS, PLUGIN, LAYOUT = "nvidia_mps_threads_percent", "nvidia_device_plugin_enabled", "nvidia_mig_layout"
MEMORY, MODEL = "nvidia_mps_memory_mib", "nvidia_driver_model"
_LEAST_MIB = 64
"""A context of CUDA takes more than that on every GPU."""
SANDBOXES = "gvisor_gpu", "kata_gpu"
Problem = tuple[str, str, str]
"""Variable, what is wrong, what to write instead."""


def check_mps(draft: Draft) -> None:
    """Each contradiction is named once, at the line that has it."""
    sandboxed = {name: {host.name for host in draft.members(name)} for name in SANDBOXES}
    once = Once(draft.problems)
    for host in concerned(draft, "gpu", ENABLED):
        if host.values.get(ENABLED) is not True:
            continue
        groups = [name for name, members in sandboxed.items() if host.name in members]
        for variable, message, remedy in _problems(host, groups):
            place = draft.place(host, variable)
            once.add(place, variable, f"{message} ({host.name})", remedy, what=message)


def _problems(host: HostDraft, sandboxes: list[str]) -> Iterator[Problem]:
    value = host.values.get
    if not value(PLUGIN):
        yield (
            ENABLED,
            f"shares GPUs, and no pod gets a share without {PLUGIN}",
            f"write {PLUGIN}: true beside it",
        )
    if value(LAYOUT):
        remedy = f"take {ENABLED} or {LAYOUT} away: a GPU is shared as a whole"
        yield ENABLED, f"shares GPUs that {LAYOUT} divides", remedy
    for name in sandboxes:
        remedy = f"take the host out of {name}, or take {ENABLED} away from it"
        yield (
            ENABLED,
            f"shares GPUs of a host in the group {name}, whose sandboxes reach no MPS daemon",
            remedy,
        )
    yield from _memory(host)
    threads, pods = value(THREADS), value(PODS)
    if isinstance(threads, int) and isinstance(pods, int) and threads and threads * pods < 100:
        remedy = f"write at least {-(-100 // pods)}, or 0 for equal shares"
        yield THREADS, f"{pods} pods with {threads} % each leave {100 - threads * pods} % to nobody", remedy


def _memory(host: HostDraft) -> Iterator[Problem]:
    """A pod computes in what it gets, and gets no more than a GPU has."""
    mib, model = host.values.get(MEMORY), str(host.values.get(MODEL) or "")
    if not isinstance(mib, int) or mib <= 0:
        return
    if mib < _LEAST_MIB:
        remedy = f"write MiB, for example {mib * 1024}, or 0 for equal shares"
        yield MEMORY, f"{mib} MiB are less than CUDA itself needs of a GPU", remedy
    most = mig.largest_gb(model) * 1024
    if most and mib > most:
        yield MEMORY, f"{mib} MiB are more than a {model} has", f"write at most {most}, or 0 for equal shares"


CHECKS = (check_mps,)
