# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reading a YAML file in which a role describes itself: every mistake is kept with its line."""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Place, Problems, nearest

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class StrictReader:
    """Reads one file; nothing stops it but a text that is not YAML.

    Args:
        file: the file.
        problems: gets everything that is wrong with it.
    """

    def __init__(self, file: Path, problems: Problems) -> None:
        self._file, self._problems = str(file), problems
        self._lines: dict[str, int] = {}
        """What was written (keys joined with dots) -> line."""
        self._loader: t.Any = None

    def _add(self, line: int, path: str, message: str, remedy: str) -> None:
        self._problems.add(Place(self._file, line), path, message, remedy)

    def _value(self, node: t.Any) -> t.Any:
        return self._loader.construct_object(node, deep=True)

    def _entries(self, node: t.Any, path: str, known: Collection[str]) -> Iterator[tuple[str, t.Any]]:
        """Yield the keys of a dictionary that mean something, with the nodes of their values."""
        if not isinstance(node, yaml.MappingNode):
            line = line_of(node) if node is not None else 1
            self._add(line, path or "(file)", "must be a dictionary", "write 'key: value' lines")
            return
        for key, value in node.value:
            name, line = str(key.value), line_of(key)
            full = f"{path}.{name}" if path else name
            if full in self._lines:
                first = self._lines[full]
                self._add(line, full, f"is there twice, first on line {first}", "write it once")
                continue
            self._lines[full] = line
            if known and name not in known:
                near = nearest(name, known)
                remedy = f"write {near}" if near else f"write one of {', '.join(known)}"
                self._add(line, full, "unknown key", remedy)
                continue
            yield name, value

    def _choice(self, found: Mapping[str, t.Any], key: str, choices: tuple[str, ...], path: str = "") -> str:
        if key not in found:
            return ""
        value = self._value(found[key])
        if isinstance(value, str) and value in choices:
            return value
        self._unknown(line_of(found[key]), f"{path}.{key}".lstrip("."), value, choices)
        return ""

    def _unknown(self, line: int, path: str, value: object, choices: tuple[str, ...]) -> None:
        near = nearest(str(value), choices)
        remedy = f"write {near}" if near else f"write one of {', '.join(choices)}"
        self._add(line, path, f"is {value}, which nothing is called", remedy)

    def _names(
        self, found: Mapping[str, t.Any], key: str, choices: tuple[str, ...] = (), path: str = ""
    ) -> tuple[str, ...]:
        if key not in found:
            return ()
        node, full = found[key], f"{path}.{key}".lstrip(".")
        value = self._value(node)
        if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
            self._add(line_of(node), full, "must be a list of names", "write [NAME, NAME]")
            return ()
        for item, name in zip(node.value, value, strict=True):
            if f"{full}.{name}" in self._lines:
                self._add(line_of(item), full, f"names {name} twice", "write it once")
            self._lines[f"{full}.{name}"] = line_of(item)
            if choices and name not in choices:
                self._unknown(line_of(item), full, name, choices)
        return tuple(value)

    def _truth(self, found: Mapping[str, t.Any], key: str, path: str = "") -> bool:
        value = self._value(found[key]) if key in found else False
        if not isinstance(value, bool):
            self._add(line_of(found[key]), f"{path}.{key}".lstrip("."), f"is {value}", "write true or false")
        return value is True


def line_of(node: t.Any) -> int:
    """Return the line that a node of a YAML tree begins on."""
    return int(node.start_mark.line) + 1
