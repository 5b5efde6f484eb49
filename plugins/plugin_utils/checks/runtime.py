# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Runtime classes: data that sandboxes can be started with, hosts that can serve what they are listed for."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import runtime
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.entry import Entry
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.newcomer import concerned
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Once, nearest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.values import Rejected

CLASSES = "gvisor_classes"
FLAGS = "gvisor_runsc_flags"
_ONLY_FOR: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("driver_capabilities", ("nvproxy",), "is about GPUs in gVisor"),
    ("flags", ("gvisor", "nvproxy"), "is about runsc"),
)


def check_classes(draft: Draft) -> None:
    """Every class is complete, of one kind, and cannot be talked out of its isolation by a pod."""
    seen: set[str] = set()
    for entry in entries(draft):
        name, kind = entry.text("name"), runtime.kind_of(entry.value)
        _try(entry, "name", runtime.class_name, name)
        if name in seen:
            entry.problem("name", f"{name} is there twice", "write every class once")
        seen.add(name)
        _check_group(entry)
        for field, read in (
            ("overhead_cpu", runtime.cpu_quantity),
            ("overhead_memory", runtime.memory_bytes),
        ):
            text = entry.text(field)
            if field in entry.value and entry.value[field] is not None:
                _try(entry, field, read, text)
        for text in entry.value.get("annotations") or ():
            _try(entry, "annotations", runtime.annotation, str(text), kind)
        for field, kinds, what in _ONLY_FOR:
            if entry.value.get(field) and kind in runtime.GROUPS and kind not in kinds:
                entry.problem(field, f"{what}, and {name} is of the kind {kind}", "remove it")
        release = str(draft.site_value("gvisor_version"))
        for flag, value in (entry.value.get("flags") or {}).items():
            _try(entry, "flags", runtime.flag, str(flag), value, release)


def _check_group(entry: Entry) -> None:
    draft, kind = entry.draft, runtime.kind_of(entry.value)
    group, needed = runtime.group_of(entry.value), runtime.GROUPS.get(kind)
    if needed is None:  # of no known kind, which is reported by itself
        return
    if group not in draft.inventory.group_layers:
        if entry.value.get("group"):
            near = nearest(group, draft.inventory.group_layers)
            entry.problem(
                "group", f"there is no group {group}", f"write {near}" if near else f"list hosts in {group}"
            )
        return
    lacking = [host.name for host in draft.members(group) if needed not in host.groups]
    if lacking:
        entry.problem(
            "group",
            f"{', '.join(lacking[:3])} of {group} cannot serve the kind {kind}: not in the group {needed}",
            f"list them in {needed} too, or write another group",
        )


def check_served(draft: Draft) -> None:
    """A host that is listed for a kind of isolation offers a class of it."""
    served = [(runtime.kind_of(entry.value), runtime.group_of(entry.value)) for entry in entries(draft)]
    for kind, group in runtime.GROUPS.items():
        for host in draft.members(group):
            if not any(each == kind and others in host.groups for each, others in served):
                draft.problems.add(
                    draft.member_place(group, host.name),
                    f"groups.{group}",
                    f"host {host.name} serves no class: {CLASSES} has none of the kind {kind} for it",
                    f"add one to {CLASSES}, or take the host out of {group}",
                )


def check_flags(draft: Draft) -> None:
    """The flags that hosts give to every sandbox."""
    seen: set[int] = set()
    for host in concerned(draft, "gvisor", FLAGS) + draft.members("gvisor_gpu"):
        flags = host.values.get(FLAGS)
        if not isinstance(flags, Mapping) or id(flags) in seen:
            continue
        seen.add(id(flags))
        for name, value in flags.items():
            try:
                runtime.flag(str(name), value, str(host.values.get("gvisor_version")))
            except Rejected as rejected:
                place = draft.inner_place(host, FLAGS, str(name))
                draft.problems.add(place, f"{FLAGS}.{name}", rejected.message, rejected.remedy)


def check_hosts(draft: Draft) -> None:
    """The cgroup driver is the kubelet's where sandboxes run."""
    variable = "gvisor_systemd_cgroup"
    once = Once(draft.problems)
    for host in draft.members("gvisor") + draft.members("gvisor_gpu"):
        if host.values.get(variable) is False and host.values.get("node_cgroup_versions") == [2]:
            once.add(
                draft.place(host, variable),
                variable,
                "is false, and with cgroup version 2 the kubelet lets systemd make the pods' cgroups",
                "write true, or let node_cgroup_versions have 1 too",
            )


def entries(draft: Draft) -> Iterator[Entry]:
    """Return the classes of a site, each with the place where it is written."""
    host = draft.writer(CLASSES)
    value = draft.site_value(CLASSES)
    written = host.settings[CLASSES].value if host else None
    anyone = host or next(iter(draft.hosts.values()))
    for index, each in enumerate(value if isinstance(value, list) else ()):
        if isinstance(each, Mapping):
            item = written[index] if isinstance(written, list) and index < len(written) else None
            yield Entry(draft, anyone, f"{CLASSES}[{index}]", each, item)


def _try(entry: Entry, field: str, accept: Callable[..., object], *values: t.Any) -> None:
    try:
        accept(*values)
    except Rejected as rejected:
        entry.problem(field, rejected.message, rejected.remedy)


def check_overhead(draft: Draft) -> None:
    """The overhead of classes that do not say their own."""
    for variable, read in (
        ("gvisor_overhead_cpu", runtime.cpu_quantity),
        ("gvisor_overhead_memory", runtime.memory_bytes),
    ):
        value = draft.site_value(variable)
        if isinstance(value, str):
            try:
                read(value)
            except Rejected as rejected:
                draft.problems.add(draft.site_place(variable), variable, rejected.message, rejected.remedy)


def check_shim(draft: Draft) -> None:
    """What makes up for a lab's machine stays in labs."""
    variable, once = "gvisor_shim_artifact", Once(draft.problems)
    if any(host.values.get("site_lab") for host in draft.hosts.values()):
        return
    for host in concerned(draft, "gvisor", variable):
        if str(host.values.get(variable)).endswith("-lab"):
            message = "is for machines that may not lower an OOM score, which only labs are"
            remedy = "remove it: hosts of a site get the one of gVisor"
            once.add(draft.place(host, variable), variable, message, remedy)


CHECKS = (check_classes, check_served, check_flags, check_hosts, check_overhead, check_shim)
