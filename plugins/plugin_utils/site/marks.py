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
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import ini_text, shape
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.child_groups import (
    circles,
    mixed_up,
    only_named,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.host_ranges import expanded
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.plugin_file import wrong_plugin
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Place, Problem, nearest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.sources import (
    SUFFIXES,
    Source,
    Sources,
    program_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.yaml_text import (
    VAULT,
    Duplicate,
    is_encrypted,
    is_null,
    line_of,
    parse,
)


@dataclasses.dataclass(slots=True)
class Marks:
    """Everything found in the files of an inventory.

    Args:
        groups: group to the place where it is first named.
        hosts: host to the place where it is first named.
        members: (group, host) to the place where the host is listed in that group.
        children: group to the groups below it, each with the place where it is listed.
        filled: groups that are more than a name somewhere: they have hosts, children, variables or ``{}``.
        variables: variable to the place where it is first set.
        variable_files: (``group_vars`` or ``host_vars``, name) to the file.
        duplicates: keys that are there twice.
        of_hosts: (host, variable) to the values that are written for it, as texts, each with its first place.
        octals: variables whose value is a number with a zero in front, with their places and texts.
        misread: what keeps Ansible from reading the inventory as it was written; nothing else is judged then.
        missing: sources that are not there. A playbook that makes them may run without.
        inventory_files: the files of hosts, groups and inventory plugins.
        encrypted: files that ansible-vault encrypted.
        first_file: the first one of which the lines are known.
    """

    groups: dict[str, Place] = dataclasses.field(default_factory=dict)
    hosts: dict[str, Place] = dataclasses.field(default_factory=dict)
    members: dict[tuple[str, str], Place] = dataclasses.field(default_factory=dict)
    children: dict[str, dict[str, Place]] = dataclasses.field(default_factory=dict)
    filled: set[str] = dataclasses.field(default_factory=set)
    variables: dict[str, Place] = dataclasses.field(default_factory=dict)
    variable_files: dict[tuple[str, str], str] = dataclasses.field(default_factory=dict)
    duplicates: list[Duplicate] = dataclasses.field(default_factory=list)
    of_hosts: dict[tuple[str, str], dict[str, Place]] = dataclasses.field(default_factory=dict)
    octals: list[tuple[str, Place, str]] = dataclasses.field(default_factory=list)
    misread: list[Problem] = dataclasses.field(default_factory=list)
    missing: list[Problem] = dataclasses.field(default_factory=list)
    inventory_files: list[str] = dataclasses.field(default_factory=list)
    encrypted: list[str] = dataclasses.field(default_factory=list)
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


_OF_THIS_RUN: dict[tuple[tuple[str, ...], bool], Marks] = {}


def marks_of_run(given: Sequence[str], decrypts: bool) -> Marks:
    """Return the marks of the inventory of this run: read once for the process and those that it starts.

    Args:
        given: as for ``read_marks``.
        decrypts: as for ``read_marks``.
    """
    key = (tuple(given), decrypts)
    if key not in _OF_THIS_RUN:
        _OF_THIS_RUN[key] = read_marks(given, decrypts)
    return _OF_THIS_RUN[key]


def read_marks(given: Sequence[str], decrypts: bool = True) -> Marks:
    """Read the sources of an inventory (files or folders) and the variable files beside them.

    Executable sources (dynamic inventories) and other formats are left alone.

    Args:
        given: the sources, as given to ``ansible-playbook -i``.
        decrypts: there is a password for files that ansible-vault encrypted.
    """
    sources, marks = Sources(given), Marks()
    marks.misread.extend(sources.problems)
    marks.missing.extend(sources.missing)
    for source in sources.read:
        _read(source, marks, decrypts)
    marks.misread.extend(circles(marks.children))
    both = marks.hosts.keys() & marks.groups.keys()
    with_values = {host for host, _variable in marks.of_hosts}
    marks.misread.extend(mixed_up(both, marks.members, marks.children, with_values))
    if not marks.misread:
        # With a file that says less than it should, names in others stand alone.
        there = marks.filled | {name for kind, name in marks.variable_files if kind == "group_vars"}
        marks.misread.extend(only_named(marks.children, there))
    return marks


def _read(source: Source, marks: Marks, decrypts: bool) -> None:
    path, file = source.path, str(source.path)
    is_inventory = source.variables_of is None
    if is_inventory:
        marks.inventory_files.append(file)
    if is_inventory and (program := program_of(path)) is not None:
        if program:
            marks.misread.append(Problem(file, 1, "(file)", *program))
        return
    if source.variables_of is not None:
        marks.variable_files.setdefault(source.variables_of, file)
    text = _text(path, marks)
    if text is None:
        return
    if text.startswith(VAULT):
        marks.encrypted.append(file)
        if not decrypts:
            message, remedy = "is encrypted, and no password was given", "add --vault-password-file FILE"
            marks.misread.append(Problem(file, 1, "(file)", message, remedy))
        elif not is_encrypted(text):
            message = "begins like a file that ansible-vault encrypted, and the rest is no such text"
            marks.misread.append(Problem(file, 1, "(file)", message, "encrypt it again"))
        return
    if is_inventory and path.suffix not in SUFFIXES:
        if path.suffix == ".toml":
            return
        marks.first_file = marks.first_file or file
        if not path.suffix and _looks_like_yaml(text):
            _read_yaml(text, source, marks)
        else:
            _read_ini(text, file, marks)
        return
    if is_inventory:
        marks.first_file = marks.first_file or file
    _read_yaml(text, source, marks)


def _text(path: Path, marks: Marks) -> str | None:
    content = path.read_bytes()
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        message = f"is not UTF-8: the byte 0x{content[error.start]:02x} on this line"
        marks.misread.append(Problem(str(path), line, "(file)", message, "save the file as UTF-8"))
    return None


def _looks_like_yaml(text: str) -> bool:
    """Tell as Ansible does, which tries YAML first: a text that YAML makes a dictionary of."""
    first = next((line for line in text.splitlines() if line.strip() and line.lstrip()[0] not in "#;"), "")
    return first.rstrip() == "---" or first.rstrip().endswith(":") or first.startswith("{")


def _read_yaml(text: str, source: Source, marks: Marks) -> None:
    file = str(source.path)
    found = parse(text, file)
    marks.duplicates.extend(found.duplicates)
    if found.broken is not None:
        place, reason = found.broken
        marks.misread.append(Problem(place.file, place.line, "(file)", _not_yaml(reason), _CORRECT))
        return
    if source.variables_of is not None:
        _refuse(shape.wrong_variables(found.root), file, marks)
        _read_variables(found.root, file, marks)
        scope, name = source.variables_of
        if scope == "host_vars":
            _read_values(name, found.root, file, marks)
        return
    if found.root is not None and shape.is_plugin(found.root):
        _refuse(wrong_plugin(found.root, file), file, marks)
        return
    _refuse(shape.wrong_inventory(found.root), file, marks)
    if isinstance(found.root, yaml.MappingNode):
        for key, value in shape.pairs(found.root):
            _read_group(key, value, file, marks)


_OCTAL = re.compile(r"0[0-7]+")
_CORRECT = "correct the syntax on this line"


def _not_yaml(reason: str) -> str:
    return f"is not valid YAML: {reason}"


def _refuse(wrong: Iterator[shape.Found], file: str, marks: Marks) -> None:
    marks.misread.extend(Problem(file, line, path, message, remedy) for line, path, message, remedy in wrong)


def _place(node: yaml.Node, file: str) -> Place:
    return Place(file, line_of(node))


def _read_variables(node: yaml.Node | None, file: str, marks: Marks) -> None:
    if isinstance(node, yaml.MappingNode):
        for key, value in shape.pairs(node):
            marks.variables.setdefault(str(key.value), _place(key, file))
            if isinstance(value, yaml.ScalarNode) and not value.style and _OCTAL.fullmatch(value.value):
                marks.octals.append((str(key.value), _place(key, file), str(value.value)))


def _read_group(key: yaml.Node, value: yaml.Node, file: str, marks: Marks) -> None:
    name = str(key.value)
    marks.groups.setdefault(name, _place(key, file))
    if not is_null(value):
        marks.filled.add(name)
    if not isinstance(value, yaml.MappingNode):
        return
    for section, content in shape.pairs(value):
        if isinstance(content, yaml.ScalarNode) and not is_null(content):
            _read_single(name, str(section.value), content, file, marks)
        if not isinstance(content, yaml.MappingNode):
            continue
        if section.value == "vars":
            _read_variables(content, file, marks)
            continue
        twice: set[str] = set()
        for child, child_content in shape.pairs(content):
            if section.value == "children":
                marks.children.setdefault(name, {}).setdefault(str(child.value), _place(child, file))
                _read_group(child, child_content, file, marks)
            elif section.value == "hosts":
                _read_host(name, child, file, marks)
                _read_variables(child_content, file, marks)
                if str(child.value) not in twice:  # that is said by itself
                    _read_values(str(child.value), child_content, file, marks)
                twice.add(str(child.value))


def _read_values(host: str, node: yaml.Node | None, file: str, marks: Marks) -> None:
    """Keep what is written for one host; of the same value the first place."""
    hosts, _wrong = expanded(host)
    for key, value in shape.pairs(node) if isinstance(node, yaml.MappingNode) else ():
        if isinstance(value, yaml.ScalarNode) and not is_null(value):
            for name in hosts:
                values = marks.of_hosts.setdefault((name, str(key.value)), {})
                values.setdefault(str(value.value), _place(key, file))


def _read_single(group: str, section: str, content: yaml.Node, file: str, marks: Marks) -> None:
    """Read ``hosts: NAME`` and ``children: NAME``."""
    if section == "hosts":
        _read_host(group, content, file, marks)
    elif section == "children":
        marks.children.setdefault(group, {}).setdefault(str(content.value), _place(content, file))
        marks.groups.setdefault(str(content.value), _place(content, file))


def _read_host(group: str, node: yaml.Node, file: str, marks: Marks) -> None:
    _mark_hosts(group, str(node.value), _place(node, file), marks)


def _mark_hosts(group: str, name: str, place: Place, marks: Marks) -> list[str]:
    """Keep where hosts are listed, and return them: one, or those of a range."""
    hosts, wrong = expanded(name)
    if wrong:
        remedy = "write [FIRST:LAST], the first before the last, as in rack-[01:40]"
        marks.misread.append(Problem(place.file, place.line, f"hosts.{name}", wrong, remedy))
    for host in hosts:
        marks.hosts.setdefault(host, place)
        marks.members.setdefault((group, host), place)
    return hosts


def _read_ini(text: str, file: str, marks: Marks) -> None:
    declared: set[str] = {"all", "ungrouped"}
    wanted: list[tuple[str, Place, str]] = []
    set_on: dict[tuple[str, str], int] = {}
    for line in ini_text.lines_of(text):
        place = Place(file, line.number)
        if line.kind == "wrong":
            marks.misread.append(Problem(file, line.number, "(line)", line.name, line.more))
        elif line.kind == "section":
            marks.groups.setdefault(line.group, place)
            if line.name == "vars":
                wanted.append(
                    (line.group, place, f"[{line.group}:vars] sets variables of a group that is not there")
                )
            else:
                declared.add(line.group)
                marks.filled.add(line.group)
        elif line.kind == "child":
            marks.children.setdefault(line.group, {}).setdefault(line.name, place)
            wanted.append((line.name, place, "is not there"))
        elif line.kind == "host":
            _mark_hosts(line.group, line.name, place, marks)
        else:
            marks.variables.setdefault(line.name, place)
            first = set_on.setdefault((line.group, line.name), line.number)
            _group, of_host, host = line.group.partition(":")
            if of_host and first == line.number:
                for each in expanded(host)[0]:
                    marks.of_hosts.setdefault((each, line.name), {}).setdefault(line.more, place)
            if first != line.number:
                marks.duplicates.append(Duplicate(place, line.name, first))
    for name, place, message in wanted:
        if name not in declared:
            near = nearest(name, declared - {"all", "ungrouped"})
            remedy = f"write {near}" if near else f"add a section [{name}] to this file"
            marks.misread.append(Problem(place.file, place.line, f"groups.{name}", message, remedy))
