# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""YAML (and JSON) as a tree of texts with their places: no scalar is a number before somebody says so."""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Sequence

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.problems import (
    Cell,
    Findings,
    quoted,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.depth import DEEPEST, too_deep
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest

_EMPTY = ("", "~", "null")


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Makes syntax trees without working out which scalar is what."""

    def resolve(self, *_: object) -> str:
        return ""


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A value of the tree, and where it begins (from 1)."""

    node: yaml.Node

    @property
    def line(self) -> int:
        """The line, from 1."""
        return self.node.start_mark.line + 1

    @property
    def column(self) -> int:
        """The column, from 1."""
        return self.node.start_mark.column + 1

    @property
    def is_mapping(self) -> bool:
        """Whether it has keys."""
        return isinstance(self.node, yaml.MappingNode)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is written there, or null."""
        return isinstance(self.node, yaml.ScalarNode) and not self.node.style and self.node.value in _EMPTY

    def mapping(self, found: Findings, path: str, known: Sequence[str] | None) -> dict[str, Node]:
        """Return what it has under its keys; nothing, with a problem, when it is something else.

        Args:
            found: takes the problems: another kind of value, keys that are there twice or are not known.
            path: what to call it.
            known: the keys that may be there; None for any.
        """
        if not isinstance(self.node, yaml.MappingNode):
            if not self.is_empty:
                found.add(
                    self.line, self.column, path, "is not a mapping", "write keys and values: key: value"
                )
            return {}
        taken: dict[str, Node] = {}
        for key, value in self.node.value:
            at = Node(key)
            if not isinstance(key, yaml.ScalarNode):
                found.add(
                    at.line, at.column, path, "a key is not a text", "write keys and values: key: value"
                )
                continue
            name = str(key.value)
            if name not in taken and (known is None or name in known):
                taken[name] = Node(value)
                continue
            called = f"{path}.{quoted(name)}" if path else quoted(name)
            if name in taken:
                found.add(at.line, at.column, called, "the key is there twice", "keep one of them")
            else:
                near = nearest(name, known or ())
                remedy = f"write {near or 'one of ' + ', '.join(known or ())}"
                found.add(at.line, at.column, called, "no such key is known", remedy)
        return taken

    def items(self, found: Findings, path: str, most: int) -> list[Node]:
        """Return the items of a list; nothing, with a problem, when it is something else or too long."""
        if not isinstance(self.node, yaml.SequenceNode):
            if not self.is_empty:
                found.add(
                    self.line, self.column, path, "is not a list", "write items, each with a hyphen before it"
                )
            return []
        if len(self.node.value) > most:
            found.add(
                self.line, self.column, path, f"has {len(self.node.value)} items", f"write at most {most}"
            )
            return []
        return [Node(item) for item in self.node.value]


def scalar(node: Node, found: Findings, path: str) -> Cell | None:
    """Return the text of a value, None when nothing is written there, or (a problem) a list or mapping."""
    if isinstance(node.node, yaml.ScalarNode):
        return None if node.is_empty else Cell(str(node.node.value), node.line, node.column, path)
    found.add(node.line, node.column, path, "is not a single value", "write one value")
    return None


def tree(text: str, found: Findings) -> Node | None:
    """Return the tree of a text, None (with a problem) when there is none.

    Args:
        text: the file.
        found: takes the problem.
    """
    try:
        if (deep := too_deep(text, _Loader)) is not None:
            remedy = "write servers: and a list below it"
            found.add(*_place(deep), "", f"more than {DEEPEST} levels", remedy)
            return None
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        place = _place(error.problem_mark or error.context_mark)
        found.add(*place, "", f"not YAML: {quoted(str(error.problem or error.context))}", "correct it there")
        return None
    except yaml.YAMLError as error:
        found.add(0, 0, "", f"not YAML: {quoted(' '.join(str(error).split()))}", "correct it")
        return None
    if root is None:
        found.add(0, 0, "", "the file says nothing", "write servers: and a list below it")
        return None
    return Node(root)


def _place(mark: t.Any) -> tuple[int, int]:
    return (mark.line + 1, mark.column + 1) if mark else (0, 0)
