# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Groups below groups: circles, and names that nobody fills. Ansible passes over both with a warning."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Place, Problem, nearest

Children = Mapping[str, Mapping[str, Place]]
"""Group to the groups below it, each with the place where it is listed."""


def circles(children: Children) -> Iterator[Problem]:
    """Yield a problem for each group that is below itself, at the line that closes the circle.

    Args:
        children: group to the groups below it, each with the place where it is listed.
    """
    done: set[str] = set()

    def visit(group: str, above: tuple[str, ...]) -> Iterator[Problem]:
        for child, place in children.get(group, {}).items():
            if child in (*above, group):
                way = " > ".join((*above, group, child))
                message = f"is below itself: {way}"
                yield Problem(place.file, place.line, f"groups.{child}", message, f"take it out of {group}")
            elif child not in done:
                yield from visit(child, (*above, group))
        done.add(group)

    for group in list(children):
        if group not in done:
            yield from visit(group, ())


def mixed_up(
    names: Iterable[str],
    members: Mapping[tuple[str, str], Place],
    children: Children,
    with_values: Collection[str],
) -> Iterator[Problem]:
    """Yield a problem for each group that is listed as a host, and each host that is listed as a group.

    A name that is both in earnest is left to the check of names.

    Args:
        names: those that stand for a host in one place and for a group in another.
        members: (group, host) to the place where the host is listed in that group.
        children: as for ``circles``.
        with_values: hosts that have variables of their own.
    """
    lists: dict[str, list[tuple[str, Place]]] = {}
    for (group, host), place in members.items():
        lists.setdefault(host, []).append((group, place))
    with_members = {group for group, _host in members}
    for name in sorted(names):
        is_host = name in with_values or len(lists.get(name, ())) > 1
        is_group = name in with_members or bool(children.get(name))
        if is_group and not is_host:
            for group, place in lists.get(name, ()):
                message = f"is a group, and stands among the hosts of {group}"
                remedy = f"list it below the children of {group} ([{group}:children] in INI)"
                yield Problem(place.file, place.line, f"groups.{group}.{name}", message, remedy)
        elif is_host and not is_group:
            for group, below in children.items():
                if name in below:
                    place = below[name]
                    message = f"is a host, and stands among the groups below {group}"
                    remedy = f"list it below the hosts of {group}, not below children"
                    yield Problem(place.file, place.line, f"groups.{group}.{name}", message, remedy)


def only_named(children: Children, there: Collection[str]) -> Iterator[Problem]:
    """Yield a problem for each group that is listed below another one and is nothing anywhere.

    Args:
        children: as for ``circles``.
        there: groups that are more than a name somewhere.
    """
    for group, below in children.items():
        for child, place in below.items():
            if child in there:
                continue
            near = nearest(child, there)
            remedy = f"write {near}, or " if near else "write "
            message = f"is listed in {group} and is there nowhere: it has no hosts, children or variables"
            yield Problem(
                place.file,
                place.line,
                f"groups.{child}",
                message,
                f"{remedy}'{child}: {{}}' while it is empty",
            )
