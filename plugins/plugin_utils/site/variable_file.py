# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a role declares of its variables, ``meta/argument_specs.yml``: read strictly.

Keys of ours stand beside Ansible's: ``scope``, ``range`` and ``meaning``, ``format``, ``keys``, ``anything``,
and what of the mirror a version chooses. Ansible passes over them, ``ansible-doc`` shows them. docs/roles.md
explains them.
"""

from __future__ import annotations

import functools
import typing as t
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.formats import GRAMMARS
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Place, Problems
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.strict_reader import LOADER, StrictReader

VARIABLES = "argument_specs.yml"
SCOPES = ("host", "site")
_OF_VERSIONS = ("files", "images", "only_with")
_OF_FORMATS = ("format", "keys", "anything")
_OF_VARIABLES = (
    "type", "elements", "choices", "default", "required", "description", "options", "no_log", "version_added",
    "mutually_exclusive", "required_together", "required_one_of", "required_if", "required_by",
    "scope", "range", "meaning", *_OF_FORMATS, *_OF_VERSIONS,
)  # fmt: skip
"""Ansible's keys of an option (docs: Role argument validation), and ours."""


class Limit(t.NamedTuple):
    """Smallest and largest value that is accepted, and what it is, which is shown to the operator."""

    smallest: float
    largest: float
    reason: str


class Version(t.NamedTuple):
    """What of the mirror a variable chooses: files by name, images as references with ``{}`` for the version.

    ``only_with`` is a variable without which the version does not matter, "" where it always does.
    """

    files: tuple[str, ...]
    images: tuple[str, ...]
    only_with: str


Variable = tuple[str, str, Limit | None, Version | None]
"""Name; scope, "" for the layer's; range; what it chooses of the mirror."""


class _Strict(LOADER):  # type: ignore[misc,valid-type]
    """Refuses a key that is there twice, of which readers of YAML keep the last without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[t.Hashable, t.Any]:
        """Return a dictionary."""
        mapping: dict[t.Hashable, t.Any] = super().construct_mapping(node, deep)
        if len(mapping) < len(node.value):
            first: dict[str, int] = {}
            for key, _value in node.value:
                line = first.setdefault(str(key.value), key.start_mark.line + 1)
                if line != key.start_mark.line + 1:
                    raise yaml.MarkedYAMLError(
                        problem=f"{key.value} is there twice, first on line {line}",
                        problem_mark=key.start_mark,
                    )
        return mapping


class Parsed(t.NamedTuple):
    """A file once it is read: its tree, what that means, and what tells the value of a node."""

    node: t.Any
    content: t.Any
    loader: t.Any


@functools.lru_cache(maxsize=64)
def parsed(file: str, _changed: int) -> Parsed:
    """Read a file, once as long as it does not change: its types and its lines are asked for by two.

    Args:
        file: its path.
        _changed: when it did, in nanoseconds.

    Raises:
        yaml.YAMLError: it is no YAML, or has a key twice.
    """
    loader = _Strict(Path(file).read_text(encoding="utf-8"))
    node = loader.get_single_node()
    return Parsed(node, loader.construct_document(node) if node is not None else None, loader)


def read_variables(file: Path, problems: Problems) -> tuple[list[Variable], dict[str, Place]]:
    """Read what a role declares beside types and defaults, which ``specification`` reads.

    Args:
        file: ``roles/NAME/meta/argument_specs.yml``; without it there is nothing.
        problems: gets everything that is wrong with it.

    Returns:
        The variables, and where each is declared.
    """
    return _VariablesReader(file, problems).variables() if file.is_file() else ([], {})


class _VariablesReader(StrictReader):
    """Reads one file."""

    def variables(self) -> tuple[list[Variable], dict[str, Place]]:
        """Return the variables, and where each is declared."""
        try:
            node, _content, self._loader = parsed(self._file, Path(self._file).stat().st_mtime_ns)
        except yaml.YAMLError:
            return [], {}  # ``load_specification`` says so
        for key in ("argument_specs", "main", "options"):
            node = dict(self._entries(node, "", ())).get(key) if node is not None else None
            self._lines.clear()
        found = [*self._each(node)] if isinstance(node, yaml.MappingNode) else []
        return found, {name: Place(self._file, self._lines[name]) for name, *_ in found}

    def _each(self, options: yaml.MappingNode) -> Iterator[Variable]:
        for name, node in self._entries(options, "", ()):
            inner = dict(self._entries(node, name, _OF_VARIABLES)) if node.value else {}
            ranged = "range" in inner or "meaning" in inner
            limit = self._limit(inner, name) if ranged else None
            self._formats(inner, name)
            yield name, self._choice(inner, "scope", SCOPES, name), limit, self._version(inner, name)

    def _formats(self, inner: Mapping[str, t.Any], path: str) -> None:
        """Refuse a grammar that there is not, and a reason beside one; also inside dictionaries."""
        for key in ("format", "keys"):
            self._choice(inner, key, tuple(GRAMMARS), path)
        if "anything" in inner and len(set(_OF_FORMATS) & set(inner)) > 1:
            self._add(self._lines[path], path, "has a format, and a reason for none", "leave one out")
        options = inner.get("options")
        if isinstance(options, yaml.MappingNode):
            for name, node in self._entries(options, f"{path}.options", ()):
                if isinstance(node, yaml.MappingNode):
                    full = f"{path}.options.{name}"
                    self._formats(dict(self._entries(node, full, _OF_VARIABLES)), full)

    def _version(self, inner: Mapping[str, t.Any], path: str) -> Version | None:
        if not any(key in inner for key in _OF_VERSIONS):
            return None
        images = self._names(inner, "images", (), path)
        for image in images:
            if image.count("{}") != 1:
                line = self._lines[f"{path}.images.{image}"]
                self._add(line, f"{path}.images", f"{image} has no place for the version", "write {} there")
        only_with = str(self._value(inner["only_with"])) if "only_with" in inner else ""
        return Version(self._names(inner, "files", (), path), images, only_with)

    def _limit(self, inner: Mapping[str, t.Any], path: str) -> Limit | None:
        values = self._value(inner["range"]) if "range" in inner else None
        meaning = self._value(inner["meaning"]) if "meaning" in inner else None
        numbers = values if isinstance(values, list) else []
        if (
            len(numbers) != 2
            or not all(isinstance(n, int | float) and not isinstance(n, bool) for n in numbers)
            or numbers[0] > numbers[1]
            or not isinstance(meaning, str)
            or not meaning
        ):
            remedy = "write range: [SMALLEST, LARGEST] and meaning: the unit, and why"
            self._add(self._lines[path], path, "has no range that can be checked", remedy)
            return None
        return Limit(numbers[0], numbers[1], meaning)
