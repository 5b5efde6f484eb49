# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The order in which resources are applied."""

from __future__ import annotations

import typing as t


def stable_order(
    names: t.Sequence[str], requires: t.Mapping[str, t.Collection[str]]
) -> t.Tuple[t.List[str], t.List[str]]:
    """Sort names so that each one follows what it requires, otherwise keeping the given order.

    A name is moved only when something before it requires it: it then comes just before that.

    Args:
        names: unique names in the wished order.
        requires: name -> names that must come before it; names that are not listed are ignored.

    Returns:
        The order, and one cycle as a path that ends where it began (empty if there is none).
    """
    known = set(names)
    done: t.Set[str] = set()
    order: t.List[str] = []
    # Depth first with an explicit stack: documents may be deeper than Python's recursion allows.
    stack: t.List[t.Tuple[str, t.Iterator[str]]] = []
    on_path: t.Dict[str, None] = {}

    def enter(name: str) -> None:
        on_path[name] = None
        stack.append((name, iter([need for need in requires.get(name, ()) if need in known])))

    for start in names:
        if start not in done:
            enter(start)
        while stack:
            name, needs = stack[-1]
            need = next((need for need in needs if need not in done), None)
            if need is None:
                stack.pop()
                del on_path[name]
                done.add(name)
                order.append(name)
            elif need in on_path:
                path = list(on_path)
                return order, [*path[path.index(need) :], need]
            else:
                enter(need)
    return order, []
