# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Positions of hosts, groups and variables in inventory files, read a second time as a syntax tree.

ansible-core merges everything said about a host or group into one object. Some problems are about one of
those sayings (this host in *that* group, a key that is there twice), and for these the tree is needed. It
also stands in where ansible-core does not say where a value came from.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.depth import DEEPEST, too_deep
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Place


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Makes syntax trees without working out which scalar is a number or a date: nobody asks."""

    def resolve(self, *_: object) -> str:
        return ""


_INI_SECTION = re.compile(r"^\s*\[([^\]:]+)(?::\w+)?\]")
_VARIABLE_FOLDERS = ("group_vars", "host_vars")


@dataclasses.dataclass(slots=True)
class Duplicate:
    """A key that a mapping has twice; YAML readers silently keep the last."""

    place: Place
    path: str
    first_line: int


@dataclasses.dataclass(slots=True)
class Marks:
    """Everything found in the files of an inventory."""

    groups: dict[str, Place] = dataclasses.field(default_factory=dict)
    hosts: dict[str, Place] = dataclasses.field(default_factory=dict)
    members: dict[tuple[str, str], Place] = dataclasses.field(default_factory=dict)
    children: dict[str, set[str]] = dataclasses.field(default_factory=dict)
    variables: dict[str, Place] = dataclasses.field(default_factory=dict)
    variable_files: dict[tuple[str, str], str] = dataclasses.field(default_factory=dict)
    duplicates: list[Duplicate] = dataclasses.field(default_factory=list)
    broken: list[tuple[Place, str]] = dataclasses.field(default_factory=list)
    first_file: str = ""

    def member(self, group: str, host: str) -> Place | None:
        """Return where a host is listed in a group or one of the groups below it."""
        if (group, host) in self.members:
            return self.members[group, host]
        for child in sorted(self.children.get(group, ())):
            place = self.member(child, host)
            if place is not None:
                return place
        return None


def read_marks(sources: Sequence[str]) -> Marks:
    """Read the inventory sources (files or folders) and the variable files beside them.

    Files that cannot be parsed as YAML are recorded in ``broken``; executable sources (dynamic inventories)
    and other formats are left alone.
    """
    marks = Marks()
    for file, is_inventory in _files(sources):
        if is_inventory:
            marks.first_file = marks.first_file or str(file)
        else:
            _name_variable_file(file, marks)
        _read_file(file, is_inventory, marks)
    return marks


def _files(sources: Sequence[str]) -> Iterator[tuple[Path, bool]]:
    seen: set[Path] = set()
    for source in sources:
        path = Path(source)
        if not path.exists():
            continue
        if path.is_dir():
            inventory_files = [
                entry for entry in sorted(path.iterdir()) if entry.is_file() and _readable(entry)
            ]
            folder = path
        else:
            inventory_files, folder = [path], path.parent
        for entry in inventory_files:
            if entry not in seen:
                seen.add(entry)
                yield entry, True
        for name in _VARIABLE_FOLDERS:
            for entry in sorted((folder / name).rglob("*")):
                if entry not in seen and entry.is_file() and _readable(entry):
                    seen.add(entry)
                    yield entry, False


def _name_variable_file(file: Path, marks: Marks) -> None:
    """Record whose variables a file holds: ``group_vars/NAME.yml`` or a file below ``group_vars/NAME``."""
    for folder in file.parents:
        if folder.name in _VARIABLE_FOLDERS:
            inside = file.relative_to(folder)
            name = inside.parts[0] if len(inside.parts) > 1 else inside.stem
            if file.suffix == "" and len(inside.parts) == 1:
                name = file.name
            marks.variable_files.setdefault((folder.name, name), str(file))
            return


def _readable(path: Path) -> bool:
    hidden = path.name.startswith(".") or path.name.endswith("~")
    return not hidden and path.suffix in ("", ".yml", ".yaml", ".json", ".ini")


def _read_file(file: Path, is_inventory: bool, marks: Marks) -> None:
    if is_inventory and file.stat().st_mode & 0o111:
        return
    text = file.read_text(encoding="utf-8", errors="replace")
    if text.startswith("$ANSIBLE_VAULT"):
        return
    if is_inventory and file.suffix not in (".yml", ".yaml", ".json"):
        _read_ini(text, str(file), marks)
        return
    root = _find_mistakes(text, str(file), marks)
    if not isinstance(root, yaml.MappingNode):
        return
    if not is_inventory:
        _read_variables(root, str(file), marks)
        return
    for key, value in root.value:
        _read_group(key, value, str(file), marks)


def _place(node: yaml.Node, file: str) -> Place:
    return Place(file, node.start_mark.line + 1)


def _read_variables(node: yaml.Node, file: str, marks: Marks) -> None:
    if isinstance(node, yaml.MappingNode):
        for key, _value in node.value:
            marks.variables.setdefault(str(key.value), _place(key, file))


def _read_group(key: yaml.Node, value: yaml.Node, file: str, marks: Marks) -> None:
    name = str(key.value)
    marks.groups.setdefault(name, _place(key, file))
    if not isinstance(value, yaml.MappingNode):
        return
    for section, content in value.value:
        if not isinstance(content, yaml.MappingNode):
            continue
        if section.value == "vars":
            _read_variables(content, file, marks)
            continue
        for child, child_content in content.value:
            if section.value == "children":
                marks.children.setdefault(name, set()).add(str(child.value))
                _read_group(child, child_content, file, marks)
            elif section.value == "hosts":
                marks.hosts.setdefault(str(child.value), _place(child, file))
                marks.members.setdefault((name, str(child.value)), _place(child, file))
                _read_variables(child_content, file, marks)


def _read_ini(text: str, file: str, marks: Marks) -> None:
    group, kind = "ungrouped", ""
    for number, line in enumerate(text.splitlines(), 1):
        section = _INI_SECTION.match(line)
        if section:
            group = section.group(1)
            kind = line.split("]")[0].partition(":")[2]
            marks.groups.setdefault(group, Place(file, number))
            continue
        words = line.split("#")[0].split()
        if not words or words[0].startswith(";") or kind == "vars":
            continue
        if kind == "children":
            marks.groups.setdefault(words[0], Place(file, number))
            marks.children.setdefault(group, set()).add(words[0])
        else:
            marks.hosts.setdefault(words[0], Place(file, number))
            marks.members.setdefault((group, words[0]), Place(file, number))


def mistakes_in(text: str, file: str) -> Marks:
    """Return what is wrong with a YAML text whatever it says: ``broken`` and ``duplicates``."""
    marks = Marks()
    _find_mistakes(text, file, marks)
    return marks


def _find_mistakes(text: str, file: str, marks: Marks) -> yaml.Node | None:
    """Return the syntax tree, None where there is none."""
    try:
        if (deep := too_deep(text, _Loader)) is not None:
            marks.broken.append((Place(file, deep.line + 1), f"more than {DEEPEST} levels of nesting"))
            return None
        root: yaml.Node | None = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        marks.broken.append((Place(file, mark.line + 1 if mark else 1), str(error.problem or error.context)))
        return None
    except yaml.YAMLError as error:
        marks.broken.append((Place(file, 1), str(error)))
        return None
    _find_duplicates(root, file, "", marks)
    return root


def _find_duplicates(node: yaml.Node | None, file: str, path: str, marks: Marks) -> None:
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _find_duplicates(item, file, f"{path}[{index}]", marks)
    if not isinstance(node, yaml.MappingNode):
        return
    before = f"{path}." if path else ""
    first: dict[str, int] = {}
    for key, value in node.value:
        name = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
        if name and name != "<<" and name in first:
            place = Place(file, key.start_mark.line + 1)
            marks.duplicates.append(Duplicate(place, before + name, first[name]))
        first.setdefault(name, key.start_mark.line + 1)
        if not isinstance(value, yaml.ScalarNode):
            _find_duplicates(value, file, before + name, marks)
