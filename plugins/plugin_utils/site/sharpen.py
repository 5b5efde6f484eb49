# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Lines of problems, as exact as their files say.

Ansible keeps no lines of what it reads from JSON, nor of truth values and nulls inside of lists. A problem
says of which value it is, so the files of problems are read once more, and the line is that of the value.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Problem
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.yaml_text import line_of, parse

_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
_LARGEST = 1 << 22
"""Bytes of a file that is read again; the lines of larger ones are those that Ansible knows."""


def sharpened(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems, sorted, each at the line of its value.

    Args:
        problems: as they were found.
    """
    tree = functools.lru_cache(maxsize=None)(_tree)
    found = {
        _at_its_value(problem, tree(problem.file)) if _may_be_vague(problem) else problem
        for problem in problems
    }
    return sorted(found)


def _may_be_vague(problem: Problem) -> bool:
    return problem.line == 0 or "[" in problem.path or "." in problem.path


def _tree(file: str) -> yaml.Node | None:
    path = Path(file)
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST:
            return None
        return parse(path.read_text(encoding="utf-8"), file).root
    except (OSError, UnicodeDecodeError):
        return None


def _at_its_value(problem: Problem, root: yaml.Node | None) -> Problem:
    steps = [int(index) if index else name for index, name in _STEP.findall(problem.path)]
    if root is None or not steps:
        return problem
    for key, value in _keys(root, str(steps[0]), set()):
        line = _line_inside(line_of(key), value, steps[1:])
        # Of several values of that name it is the one that the line belongs to.
        if problem.line == 0 or line_of(key) <= problem.line <= line:
            return dataclasses.replace(problem, line=line)
    return problem


def _keys(node: yaml.Node, name: str, seen: set[int]) -> Iterator[tuple[yaml.Node, yaml.Node]]:
    """Yield the keys of that name, wherever they are, with their values."""
    if id(node) in seen or not isinstance(node, yaml.MappingNode):
        return
    seen.add(id(node))
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value == name:
            yield key, value
        yield from _keys(value, name, seen)


def _line_inside(line: int, node: yaml.Node, steps: list[int | str]) -> int:
    """Return the line of what is as far inside of a value as there is anything."""
    if not steps:
        return line
    step, *rest = steps
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return _line_inside(line_of(node.value[step]), node.value[step], rest)
    if isinstance(node, yaml.MappingNode):
        # A key may have dots of its own.
        for count in range(len(steps), 0, -1):
            name = ".".join(map(str, steps[:count]))
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value == name:
                    return _line_inside(line_of(key), value, steps[count:])
    return line
