# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is written for a group without hosts, or beside those that it has, as its next host would have it.

A value that nobody uses today is used on the day on which somebody lists a host in the group. So it is judged
now, by the same checks as the values of hosts that are there.
"""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.resolve import needs_template
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.values import check_value


def concerned(draft: Draft, group: str, *variables: str) -> list[HostDraft]:
    """Return the hosts of a group, and one more for each value of these variables that none of them has.

    Those have what a host there would have if it were listed in the group too. Expressions are not computed
    for them, so what is missing is no mistake of theirs; ask ``is_there``.

    Args:
        draft: the site.
        group: a group of a layer.
        variables: those that are judged.
    """
    found = draft.members(group)
    seen = {id(host.settings[name]) for host in found for name in variables if name in host.settings}

    def is_new(settings: Mapping[str, t.Any]) -> bool:
        own = {id(settings[name]) for name in variables if name in settings}
        is_news = not own <= seen
        seen.update(own)
        return is_news

    others = [host for host in draft.hosts.values() if group not in host.groups and is_new(host.settings)]
    moved = [_in_group(draft, group, host) for host in others]
    alone = draft.inventory.shared_settings(draft.inventory.ordered(_and_above(draft, group)))
    return [*found, *moved, *([_in_group(draft, group, None)] if is_new(alone) else [])]


def is_there(draft: Draft, host: HostDraft) -> bool:
    """Tell whether a host of ``concerned`` is one of the inventory as it is."""
    return draft.hosts.get(host.name) is host


def _in_group(draft: Draft, group: str, host: HostDraft | None) -> HostDraft:
    """Return a host as it would be with a group more; without one, a host that is in nothing else."""
    inventory = draft.inventory
    names = inventory.ordered({*_and_above(draft, group), *(host.groups if host else ())})
    own = inventory.host_settings[host.name] if host else {}
    settings = {**inventory.shared_settings(names), **own, **inventory.extra}
    defaults = draft.specification.defaults
    values = (
        dict(host.values)
        if host
        else {name: value for name, value in defaults.items() if not needs_template(value)}
    )
    for name, (key, value) in settings.items():
        option = draft.specification.options.get(name)
        if option is None or needs_template(value) or (host and host.settings.get(name) is settings[name]):
            continue
        judged = check_value(key, value, option, name, _unsaid)  # it was said when the group was read
        values[name] = defaults.get(name) if judged is None else judged
    return HostDraft(host.name if host else f"the next one of {group}", names, settings, values)


def _unsaid(*_: object) -> None:
    """Say nothing."""


def _and_above(draft: Draft, group: str) -> Iterable[str]:
    """Return a group and those above it: of the inventory, or else those that its layer is for."""
    if group in draft.inventory.above:
        return (group, *draft.inventory.above[group])
    declared = all_layers().groups.get(group)
    inside = declared.inside[:1] if declared else ()
    return (group, *(name for outer in inside for name in _and_above(draft, outer)))
