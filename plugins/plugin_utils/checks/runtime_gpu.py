# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""GPU driver, release of gVisor and GPU of every host that serves a class with GPUs go together."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_matrix import nvproxy
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.entry import entries
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.mirror import default_index_path
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Once
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.values import Rejected

DRIVER, MODEL, RELEASE, TESTED = (
    "gvisor_gpu_driver",
    "gvisor_gpu_model",
    "gvisor_version",
    "gvisor_gpu_tested",
)


def check_gate(draft: Draft) -> None:
    """Each combination is judged once, at the line that has it; the mirror's own program counts most."""
    supported: dict[str, tuple[str, ...]] = {}
    judged: set[tuple[str, ...]] = set()
    tested = nvproxy.tested_triples(
        each for each in draft.site_value(TESTED) or () if isinstance(each, Mapping) and len(each) == 3
    )
    for host in draft.members("gvisor_gpu"):
        values = [str(host.values.get(name) or "") for name in (DRIVER, RELEASE, MODEL)]
        if _reported_missing(draft, host, values) or tuple(values) in judged:
            continue
        judged.add(tuple(values))
        supported = supported or {**nvproxy.known_releases(), **_asked(draft)}
        triple = nvproxy.Triple(*values)
        try:
            nvproxy.check(triple, supported, tested)
        except Rejected as rejected:
            variable = MODEL if triple.model in rejected.message else DRIVER
            draft.problems.add(
                draft.place(host, variable), variable, f"{rejected.message} ({host.name})", rejected.remedy
            )


def _reported_missing(draft: Draft, host: HostDraft, values: list[str]) -> bool:
    missing = [name for name, value in zip((DRIVER, RELEASE, MODEL), values, strict=True) if not value]
    for name in missing:
        draft.problems.add(
            draft.place(host, name),
            name,
            f"is not set for host {host.name}, which serves a class with GPUs",
            f"write '{name}: ...' in the variables of the group gvisor_gpu",
        )
    return bool(missing)


def _asked(draft: Draft) -> dict[str, tuple[str, ...]]:
    """Return what the programs of the mirror say, of those releases that hosts shall have."""
    index = draft.site_value("site_artifacts_index") or default_index_path()
    releases = {
        str(host.values.get(RELEASE)): host.values.get("gvisor_layout") == "archive"
        for host in draft.members("gvisor_gpu")
    }
    answers = {
        release: nvproxy.ask_mirror(str(index), release, archive) for release, archive in releases.items()
    }
    return {release: drivers for release, drivers in answers.items() if drivers}


def check_written(draft: Draft) -> None:
    """Versions of the driver and releases of gVisor are some, whether a host has them or not."""
    sandboxed, once = {host.name for host in draft.members("gvisor_gpu")}, Once(draft.problems)
    for host in draft.hosts.values():
        if DRIVER not in host.settings or host.name in sandboxed:
            continue
        driver = str(host.values.get(DRIVER) or "")
        if driver and not nvproxy.is_driver(driver):
            message = f"{driver!r} is no version of the driver ({host.name})"
            once.add(draft.place(host, DRIVER), DRIVER, message, 'write for example "580.159.03"')
    for entry in entries(draft, TESTED):
        if (driver := entry.text("driver")) and not nvproxy.is_driver(driver):
            entry.problem(
                "driver", f"{driver!r} is no version of the driver", 'write for example "580.159.03"'
            )
        if (release := entry.text("gvisor")) and not re.fullmatch(r"[0-9]{8}\.[0-9]+", release):
            entry.problem("gvisor", f"{release!r} is no release of gVisor", 'write for example "20260817.0"')


CHECKS = (check_gate, check_written)
