# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""An INI inventory line by line, by the rules of Ansible's parser (``plugins/inventory/ini.py``).

That parser stops at the first line that it does not take, and what was read until then stays: half a site.
"""

from __future__ import annotations

import re
import shlex
import typing as t
from collections.abc import Iterator

_SECTION = re.compile(r"^\[([^:\]\s]+)(?::(\w+))?\]\s*(?:#.*)?$")
_GROUP = re.compile(r"^([^:\]\s]+)\s*(?:#.*)?$")
_KINDS = ("hosts", "vars", "children")


class Line(t.NamedTuple):
    """One line that says something.

    Args:
        number: from 1.
        kind: ``section``, ``host``, ``variable``, ``child``, or ``wrong``.
        group: the section that it stands in, or opens.
        name: of the host, variable or child; for a section its kind; for a wrong line what is wrong.
        more: for a wrong line what to write; for a variable its value, as it stands there.
    """

    number: int
    kind: str
    group: str
    name: str
    more: str = ""


_OF_YAML = {
    "write one '- item' line for each": """write NAME=["ONE", "TWO"], for a host '["ONE", "TWO"]'""",
    "write 'key: value' lines below it": """write NAME={"KEY": "VALUE"}, for a host '{"KEY": "VALUE"}'""",
}
_IN_QUOTES = "write it in quotes, for example "


def remedy_of(remedy: str) -> str:
    """Return the remedy of a value as INI has it: lists and dictionaries of Python, two quotes for a host.

    Args:
        remedy: what to write in YAML.
    """
    if remedy.startswith(_IN_QUOTES):
        return f"{remedy}, on the line of a host in two: '{remedy.removeprefix(_IN_QUOTES)}'"
    return _OF_YAML.get(remedy, remedy)


def lines_of(text: str) -> Iterator[Line]:
    """Yield the lines of an INI inventory that say something.

    Args:
        text: the inventory.
    """
    group, kind = "ungrouped", "hosts"
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line[0] in "#;":
            continue
        if section := _SECTION.match(line):
            group, kind = section.group(1), section.group(2) or "hosts"
            if kind not in _KINDS:
                wrong = f"a section of a group is [{group}], [{group}:vars] or [{group}:children]"
                yield Line(number, "wrong", group, f"[{group}:{kind}] is none: {wrong}", "write one of them")
                kind = "unknown"
            else:
                yield Line(number, "section", group, kind)
        elif line.startswith("["):
            yield Line(number, "wrong", group, f"{line} is no section", "write [NAME], without spaces")
        elif kind == "vars":
            yield _variable(number, line, group)
        elif kind == "children":
            child = _GROUP.match(line)
            if child:
                yield Line(number, "child", group, child.group(1))
            else:
                yield Line(
                    number, "wrong", group, f"{line} is no name of a group", "write one name on the line"
                )
        elif kind == "hosts":
            yield from _host(number, line, group)


def _variable(number: int, line: str, group: str) -> Line:
    name, equals, value = line.partition("=")
    if not equals:
        return Line(number, "wrong", group, f"{line} sets no variable", "write NAME=VALUE")
    return Line(number, "variable", group, name.strip(), value.strip())


def _host(number: int, line: str, group: str) -> Iterator[Line]:
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        yield Line(number, "wrong", group, f"cannot be split into words: {error}", "close the quotes")
        return
    if not words:
        return
    name, *variables = words
    if name == "---" or (name.endswith(":") and not variables):
        yield Line(
            number,
            "wrong",
            group,
            f"{name} is YAML, and this file has no ending that says so",
            "name it NAME.yml",
        )
        return
    if name.endswith((":", ",")) or "," in name:
        remedy = "write the name alone, each host on a line of its own"
        yield Line(number, "wrong", group, f"{name} is no name of one host", remedy)
        return
    yield Line(number, "host", group, name)
    if "=" in variables:
        remedy = "write NAME=VALUE, without spaces"
        yield Line(number, "wrong", group, f"there are spaces around = after the host {name}", remedy)
        return
    for word in variables:
        key, equals, value = word.partition("=")
        if not equals or not key:
            remedy = "write NAME=VALUE, with quotes around a value that has spaces"
            yield Line(number, "wrong", group, f"{word} after the host {name} sets no variable", remedy)
        else:
            yield Line(number, "variable", f"{group}:{name}", key, value)
