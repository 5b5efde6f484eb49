# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Who is in which group, and how many of them there must be."""

from __future__ import annotations

import re

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.values import rack_group
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import PREFIXES, all_layers
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Place, named, nearest

_BUILT_IN = ("all", "ungrouped")
# etcd FAQ: "an etcd cluster should not have more than seven members".
MOST_ETCD_MEMBERS = 7
_MISSPELT = 20
_NAME_OF_GROUP = re.compile(r"[A-Za-z0-9_-]+")


def _purposes() -> list[str]:
    """Return the groups of which every host is in one."""
    return [name for name, group in all_layers().groups.items() if group.purpose]


def check_group_names(draft: Draft) -> None:
    """Groups switch features on, so a misspelt group is a feature silently off.

    Groups that only an inventory plugin made (regions, sizes, ...) are nobody's mistake.
    """
    there = all_layers().groups
    for group in draft.inventory.group_layers:
        if group in there or group in _BUILT_IN or group.startswith(PREFIXES):
            continue
        if draft.from_plugin(group):
            continue
        near = nearest(group, there)
        remedy = f"write {near}" if near else "begin the names of your own groups with user_ or rack_"
        draft.problems.add(draft.group_place(group), f"groups.{group}", "unknown group", remedy)


def check_variable_files(draft: Draft) -> None:
    """A variables file named after nobody is read by nobody, and Ansible says nothing about it."""
    groups = {*draft.inventory.group_layers, *all_layers().groups, "all"} - {"ungrouped"}
    for (folder, name), file in draft.marks.variable_files.items():
        known = groups if folder == "group_vars" else set(draft.hosts)
        if name in known:
            continue
        # A group of somebody's own may be empty today; no group has a name with dots or spaces in it.
        if folder == "group_vars" and name.startswith(PREFIXES) and _NAME_OF_GROUP.fullmatch(name):
            continue
        near = nearest(name, known)
        what = "group" if folder == "group_vars" else "host"
        draft.problems.add(
            Place(file, 1),
            f"{folder}/{name}",
            f"there is no {what} {name}, so nobody reads this file",
            f"name it after {near}" if near else "remove it, or name it after one that is there",
        )


def check_counts(draft: Draft) -> None:
    """There must be a control plane, a worker, and an odd number of etcd members."""
    for group, what in (("etcd", "etcd member"), ("control_plane", "control plane"), ("nodes", "worker")):
        # Workers of bare metal and of pools come into the inventory once they run.
        made = ("site_bare_metal_cloud", "azure_pools")
        later = any(map(draft.site_value, made)) or draft.members("ironic")
        if not draft.members(group) and not (group == "nodes" and later):
            draft.problems.add(
                draft.group_place(group),
                f"groups.{group}",
                f"the site has no {what}",
                f"list at least one host in the group {group}",
            )
    count = len(draft.members("etcd"))
    if count and count % 2 == 0:
        draft.problems.add(
            draft.group_place("etcd"),
            "groups.etcd",
            f"{count} etcd members; an even number survives no more failures than {count - 1}",
            f"list {count - 1} or {count + 1} hosts in the group etcd",
        )
    if count > MOST_ETCD_MEMBERS:
        draft.problems.add(
            draft.group_place("etcd"),
            "groups.etcd",
            f"{count} etcd members; every write waits for a majority of them",
            "list 3, 5 or 7 hosts in the group etcd",
        )


def check_roles(draft: Draft) -> None:
    """Every host has a purpose and one side of the WAN; feature groups hold workers."""
    purposes = _purposes()
    # Of many without a side none is a misspelt one, and comparing names takes its time.
    few = sum(not {"azure", "on_prem"} & {*host.groups} for host in draft.hosts.values()) <= _MISSPELT
    for host in draft.hosts.values():
        if not any(group in host.groups for group in purposes):
            draft.problems.add(
                draft.host_place(host.name),
                f"hosts.{host.name}",
                "is in none of the groups " + ", ".join(purposes),
                "list it in one of them, or remove it",
            )
        sides = [group for group in ("azure", "on_prem") if group in host.groups]
        if len(sides) != 1:
            azure = named(draft.member_place("azure", host.name))
            problem = (
                f"both azure and on_prem ({azure} lists it in azure)"
                if sides
                else "neither azure nor on_prem"
            )
            meant = _meant(draft, host) if few and not sides else ""
            draft.problems.add(
                draft.member_place("on_prem", host.name) if sides else draft.host_place(host.name),
                f"hosts.{host.name}",
                f"is in {problem}",
                f"{meant}list it in exactly one of these groups, the side of the WAN it is on",
            )
    for host in draft.members("nodes"):
        if "control_plane" in host.groups:
            draft.problems.add(
                draft.member_place("nodes", host.name),
                "groups.nodes",
                f"host {host.name} is in control_plane too, and a host joins the cluster only once",
                "list it in one of the two groups",
            )


def _meant(draft: Draft, host: HostDraft) -> str:
    """Return the host that was meant by a name of which nothing is said anywhere, as part of a remedy."""
    if host.settings.keys() & {"ansible_host", "site_address"}:
        return ""
    near = nearest(host.name, (name for name in draft.hosts if name != host.name))
    return f"write {near}, or " if near else ""


def check_features(draft: Draft) -> None:
    """Feature groups hold only hosts that have what the feature builds on."""
    purposes = _purposes()
    for group, declared in all_layers().groups.items():
        needed = declared.inside
        for host in draft.members(group) if needed else ():
            if any(name in host.groups for name in needed) or not any(n in host.groups for n in purposes):
                continue
            draft.problems.add(
                draft.member_place(group, host.name),
                f"groups.{group}",
                f"host {host.name} is not in the group {' or '.join(needed)}",
                f"list it in {needed[0]} too, or take it out of {group}",
            )


def check_sides(draft: Draft) -> None:
    """Etcd and the control plane live on the Azure side: a quorum across the WAN stops with the link."""
    for group in ("etcd", "control_plane"):
        for host in draft.members(group):
            if "on_prem" in host.groups:
                draft.problems.add(
                    draft.member_place(group, host.name),
                    f"groups.{group}",
                    f"host {host.name} is on premises, on the other side of the WAN",
                    f"list hosts of the group azure in {group}",
                )


def check_racks(draft: Draft) -> None:
    """A host stands in one rack."""
    for host in draft.hosts.values():
        racks = sorted(group for group in host.groups if group.startswith("rack_"))
        said = host.values.get("site_rack")
        # What `ironspan bare-metal` writes of a rack has its own name, and the group that is made from it.
        if racks and isinstance(said, str) and said and not {f"rack_{said}", rack_group(said)} & {*racks}:
            draft.problems.add(
                draft.place(host, "site_rack"),
                "site_rack",
                f"is {said}, and host {host.name} is in the group {racks[0]}",
                f"write {racks[0].removeprefix('rack_')}, or remove it: the group says it",
            )
        if len(racks) > 1:
            draft.problems.add(
                draft.member_place(racks[1], host.name),
                f"groups.{racks[1]}",
                f"host {host.name} is in {racks[0]} too",
                "list it in the rack it stands in",
            )


CHECKS = (
    check_group_names,
    check_variable_files,
    check_counts,
    check_roles,
    check_features,
    check_sides,
    check_racks,
)
