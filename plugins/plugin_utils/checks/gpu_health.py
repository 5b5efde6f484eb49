# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a site changes of the checks of GPU hosts: checks, limits and readings that the agent has."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_matrix import fabric
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.newcomer import concerned
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Once, nearest

CHANGED, LEFT_OUT = "nvidia_health_checks", "nvidia_health_readings_off"
LINKS, MODEL = "nvidia_health_links_count", "nvidia_driver_model"
OFF = "off"
LIMITS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("H01", "H02", "H03", "H06", "H10", "H16", "H17", "H20", "H21", "H22"), ()),
    "H05": ("errors",),
    "H07": ("errors_per_hour",),
    "H08": ("rows",),
    "H09": ("pages",),
    "H11": ("minutes", "percent", "readings"),
    "H12": ("degrees",),
    "H13": ("busy_percent",),
    "H14": ("factor",),
    "H15": ("per_hour", "crc_per_second"),
    "H18": ("mib",),
    "H19": ("minutes", "gbps", "downs", "minutes_flapping"),
}
"""Check -> its limits, as ironspan.gpud has them; a test compares."""
READINGS = (
    "uuid",
    "name",
    "serial",
    "pci",
    "minor",
    "vbios",
    "inforom",
    "inforom_valid",
    "gsp",
    "part_number",
    "compute",
    "max_clock_sm",
    "power_limit",
    "pcie_max_generation",
    "pcie_max_width",
    "persistence",
    "compute_mode",
    "mig",
    "ecc_mode",
    "temperature",
    "margin",
    "memory",
    "utilization",
    "power",
    "energy",
    "clock_sm",
    "clock_memory",
    "pstate",
    "pcie_generation",
    "pcie_width",
    "pcie_replays",
    "ecc_corrected",
    "sram",
    "row_histogram",
    "retired_pages",
    "processes",
    "links",
    "link_fields",
    "fabric",
    "fields",
    "remapped",
    "ecc_uncorrected",
    "throttle",
)
"""Of ironspan.gpud too; the same test compares."""


def check_checks(draft: Draft) -> None:
    """Each wrong value is named at the line that has it; no message names a host, so it is named once."""
    for host in concerned(draft, "gpu", CHANGED, LEFT_OUT):
        for variable, judge in ((CHANGED, _changed), (LEFT_OUT, _left_out)):
            if variable in host.settings:
                judge(draft, host)


def _changed(draft: Draft, host: HostDraft) -> None:
    value = host.values.get(CHANGED)
    for name, limits in value.items() if isinstance(value, Mapping) else ():
        place, path = draft.inner_place(host, CHANGED, str(name)), f"{CHANGED}.{name}"
        if name not in LIMITS:
            near = str(name).upper() if str(name).upper() in LIMITS else ""
            remedy = f"write {near}" if near else f"write one of {', '.join(sorted(LIMITS))}"
            draft.problems.add(place, path, "there is no such check", remedy)
        elif not isinstance(limits, Mapping):
            draft.problems.add(
                place, path, f"must be a dictionary, is {limits!r}", "write for example {'off': true}"
            )
        else:
            for limit, number in limits.items():
                if fault := _fault(str(name), str(limit), number):
                    draft.problems.add(place, f"{path}.{limit}", *fault)


def _fault(name: str, limit: str, number: object) -> tuple[str, str] | None:
    known = (OFF, *LIMITS[name])
    if limit == "False":
        return "YAML reads off as false", "write it in quotes: {'off': true}"
    if limit not in known:
        near = nearest(limit, known)
        return f"{name} has no such limit", f"write {near}" if near else f"write {' or '.join(known)}"
    if limit == OFF:
        return None if isinstance(number, bool) else (f"is {number!r}", "write true or false")
    # H12 counts the degrees that are left, of which a GPU that does nothing has some sixty.
    if limit.endswith(("percent", "degrees")) and isinstance(number, int) and number > 100:
        return f"is {number}", "write a whole number from 0 to 100"
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= 1_000_000_000:
        return f"is {number!r}", "write a whole number from 0 on"
    return None


def _left_out(draft: Draft, host: HostDraft) -> None:
    value = host.values.get(LEFT_OUT)
    for index, name in enumerate(value if isinstance(value, list) else ()):
        if name not in READINGS:
            near = nearest(str(name), READINGS)
            draft.problems.add(
                draft.inner_place(host, LEFT_OUT, index),
                f"{LEFT_OUT}[{index}]",
                f"there is no reading {name!r}",
                f"write {near}" if near else f"write one of {', '.join(READINGS)}",
            )


def check_counts(draft: Draft) -> None:
    """No more NVLinks of a GPU have to be up than it has."""
    once = Once(draft.problems)
    for host in concerned(draft, "gpu", LINKS):
        wanted, model = host.values.get(LINKS), str(host.values.get(MODEL) or "")
        if LINKS not in host.settings or not isinstance(wanted, int):
            continue
        most = fabric.links(model)
        if most is not None and wanted > most:
            message = f"{wanted} is more NVLinks than a {model} has ({host.name})"
            remedy = f"write at most {most}" if most else "leave it out"
            once.add(draft.place(host, LINKS), LINKS, message, remedy)


CHECKS = (check_checks, check_counts)
