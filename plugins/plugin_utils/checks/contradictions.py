# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""One thing that is written in two ways. Ansible takes one of them by its own order, and says nothing."""

from __future__ import annotations

import itertools
import typing as t
from collections.abc import Iterator
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Once, Place, named
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.reach import parsed
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.resolve import needs_template
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.values import plain

WHERE_A_HOST_IS = ("ansible_host", "ansible_port", "site_address", "site_address_ipv6", "site_rack")
"""A host has one of each. Other variables may be written beside it and differently in its host_vars."""
_ADDRESSES = ("ansible_host", "site_address", "site_address_ipv6")
_TEMPLATE = ("{{", "{%")
AGREE = {
    "flannel_port": ("nodes", "control_plane"),
    "flannel_vni": ("nodes", "control_plane"),
    "control_plane_port": ("control_plane",),
    # etcd, tuning guide: other values for members disturb the cluster.
    "etcd_heartbeat_ms": ("etcd",),
    "etcd_election_ms": ("etcd",),
    "egress_proxy_port": ("egress_proxy",),
}
"""Variable -> groups whose hosts, taken together, have one value."""


def check_hosts(draft: Draft) -> None:
    """A host is at one place: two addresses for it are two machines, or a mistake."""
    for (host, variable), values in draft.marks.of_hosts.items():
        if len(values) < 2 or any(sign in value for value in values for sign in _TEMPLATE):
            continue
        (first, at), *others = values.items()
        for other, place in others:
            # The same key twice in one place is said where keys are read.
            if variable in WHERE_A_HOST_IS and place != at:
                draft.problems.add(
                    place,
                    variable,
                    f"is {other} for host {host}, and {first} in {named(at)}",
                    "write it once",
                )


def check_site_wide_once(draft: Draft) -> None:
    """What describes the cluster is not said by two groups, or twice for one, in two ways.

    Where hosts end up with two values, ``settings.check_site_wide`` says it. Here one of them hides the other
    until somebody moves a host. A group may say otherwise than those above it, and so may another source.
    """
    seen = {problem.path for problem in draft.problems}
    for variable in filter(all_layers().is_site_wide, draft.specification.options):
        if variable in seen:
            continue
        for (first, group, one), (second, other_group, other) in itertools.combinations(
            _written(draft, variable), 2
        ):
            if (
                one == other
                or not _rival(draft, group, other_group)
                or _source(draft, first) != _source(draft, second)
            ):
                continue
            if group == other_group:  # what stands in its file of variables counts, and stays
                first, second = second, first
            counts = "" if group == other_group else f" for the group {other_group}"
            draft.problems.add(
                second,
                variable,
                f"is written{counts} in another way than in {named(first)}; only one of them counts",
                "write it once, in group_vars/all.yml",
            )
            break


def _written(draft: Draft, variable: str) -> Iterator[tuple[Place, str, t.Any]]:
    for group, layers in draft.inventory.group_layers.items():
        for settings in layers.values():
            setting = settings.get(variable)
            if setting is not None and not needs_template(setting.value):
                place = draft.setting_place(setting.key, setting.value)
                yield place, group, plain(setting.value)


def _rival(draft: Draft, one: str, other: str) -> bool:
    """Tell whether neither of two groups is above the other; a group is its own rival."""
    return one == other or not (_is_above(draft, one, other) or _is_above(draft, other, one))


def _is_above(draft: Draft, group: str, other: str, seen: tuple[str, ...] = ()) -> bool:
    if group == "all":
        return True
    children = draft.marks.children.get(group, {})
    return other in children or any(
        _is_above(draft, child, other, (*seen, group)) for child in children if child not in (*seen, group)
    )


def _source(draft: Draft, place: Place) -> str:
    """Return the source that a file belongs to; files beside playbooks are of none."""
    file = Path(place.file)
    for name in draft.inventory.sources:
        source = Path(name).absolute()
        folder = source if source.is_dir() else source.parent
        if file.is_relative_to(folder):
            return str(source)
    return ""


def check_members_agree(draft: Draft) -> None:
    """Hosts that find each other at a port, or by a number, have the same."""
    once = Once(draft.problems)
    for variable, groups in AGREE.items():
        hosts = [host for group in groups for host in draft.members(group) if variable in host.values]
        for host in hosts:
            if host.values[variable] == hosts[0].values[variable]:
                continue
            # Somebody wrote at least one of the two.
            wrong, right = (host, hosts[0]) if variable in host.settings else (hosts[0], host)
            once.add(
                draft.place(wrong, variable),
                variable,
                f"is {wrong.values[variable]} for host {wrong.name} and {right.values[variable]} for host "
                f"{right.name}, in {named(draft.place(right, variable))}",
                "write it once, in group_vars/all.yml",
            )


def check_not_hidden(draft: Draft) -> None:
    """What a group says in the inventory's own file counts: files of variables of a group above would win.

    Ansible ranks all files of group_vars above what stands beside hosts, whatever the groups are, so the
    value of the special group would be lost without a word.
    """
    groups = draft.inventory.group_layers
    for group, layers in groups.items():
        if group == "all":
            continue
        for variable, setting in layers.get("inventory", {}).items():
            if variable not in draft.specification.options:
                continue
            for outer in ("all", *draft.inventory.above.get(group, ())):
                general = groups[outer].get("plugins_inventory", {}).get(variable)
                if general is None or variable in layers.get("plugins_inventory", {}):
                    continue
                if general.value != setting.value:
                    at = draft.setting_place(general.key, general.value)
                    draft.problems.add(
                        draft.setting_place(setting.key, setting.value),
                        variable,
                        f"does not count: Ansible takes what {named(at)} says, also for the group {group}",
                        f"write it in group_vars/{group}.yml",
                    )


def check_addresses_of_groups(draft: Draft) -> None:
    """An address is one host's: that of a group, all of whose hosts have their own, is nobody's."""
    for group, layers in draft.inventory.group_layers.items():
        for variable in _ADDRESSES:
            for setting in (settings[variable] for settings in layers.values() if variable in settings):
                if parsed(str(setting.value)) is None:
                    continue
                hosts = [*draft.hosts.values()] if group == "all" else draft.members(group)
                if len(hosts) < 2 or any(host.settings.get(variable) is setting for host in hosts):
                    continue
                draft.problems.add(
                    draft.setting_place(setting.key, setting.value),
                    variable,
                    f"is an address for the group {group}, and each of its {len(hosts)} hosts has its own",
                    "remove it, or write it for the host that it is of",
                )


CHECKS = (check_addresses_of_groups, check_hosts, check_site_wide_once, check_members_agree, check_not_hidden)
