# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the columns of a vendor's list mean, as data.

A mapping is YAML: for each of our keys a column's heading, or how its value is made from columns.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping as Map

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import csv_cells, schema, values
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.problems import (
    Cell,
    Findings,
    quoted,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.tree import Node, scalar, tree
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest

_KEYS = ("encoding", "delimiter", "header_line", "columns")
_RULES = ("column", "value", "template", "values", "number", "multiply", "lower")
_HOLE = re.compile(r"\{([^{}]*)\}")
_NUMBER = re.compile(r"[0-9]+")


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """How one value is made.

    Args:
        template: text with headings in braces, each replaced by what stands in that column.
        headings: the columns that it needs.
        values: what is written there to what is meant; a value that is not in it is a problem. Empty: any.
        number: take the first whole number of the text.
        multiply: what the number is multiplied by.
        lower: write the text in small letters.
    """

    template: str
    headings: tuple[str, ...]
    values: tuple[tuple[str, str], ...] = ()
    number: bool = False
    multiply: int = 1
    lower: bool = False

    def made(self, cells: Map[str, Cell], fallback: Cell, key: str, found: Findings) -> Cell | None:
        """Return the value of one line, None when there is none, or it has a problem."""
        used = [
            cells[heading] for heading in self.headings if heading in cells and cells[heading].text.strip()
        ]
        if len(used) < len(self.headings):
            return None
        place = (used[0] if used else fallback)._replace(path=self.headings[0] if self.headings else key)
        texts = {cell.path: cell.text.strip() for cell in used}
        text = _HOLE.sub(lambda hole: texts[hole[1]], self.template)
        if self.values:
            known = dict(self.values)
            if text not in known:
                near = nearest(text, known)
                found.at(
                    place,
                    f"the mapping has no {key} for '{quoted(text)}'",
                    f"write '{quoted(near)}', or add it to values" if near else "add it to values",
                )
                return None
            text = known[text]
        if self.number:
            match = _NUMBER.search(text)
            if match is None or len(match[0]) > 9:
                found.at(place, f"'{quoted(text)}' has no number for {key}", "write it with a number")
                return None
            text = str(int(match[0]) * self.multiply)
        return place._replace(text=text.lower() if self.lower else text)


@dataclasses.dataclass(frozen=True, slots=True)
class Mapping:
    """What somebody else's columns mean.

    Args:
        name: the mapping's file.
        rules: our keys to how their values are made.
        headings: every column that is needed.
        encoding: of the list; "" for UTF-8.
        delimiter: of the list; "" for the one its heading has most of.
        header_line: the line with the headings, from 1; what stands before it is passed over.
    """

    name: str
    rules: tuple[tuple[str, Rule], ...]
    headings: tuple[str, ...]
    encoding: str = ""
    delimiter: str = ""
    header_line: int = 1

    def record(self, cells: Map[str, Cell], fallback: Cell, found: Findings) -> dict[str, Cell]:
        """Return what one line says, by our keys; nothing when none of its columns has a value."""
        if not any(cell.text.strip() for cell in cells.values()):
            return {}
        made = ((key, rule.made(cells, fallback, key, found)) for key, rule in self.rules)
        return {key: cell for key, cell in made if cell is not None and cell.text}


def read_mapping(data: bytes, found: Findings) -> Mapping | None:
    """Return a mapping, None when its file has problems.

    Args:
        data: the file's bytes, YAML in UTF-8.
        found: takes the problems.
    """
    text = csv_cells.decoded(data, "", found)
    root = tree(text, found) if text is not None else None
    if root is None:
        return None
    top = root.mapping(found, "", _KEYS)
    encoding = _one_of(top.get("encoding"), csv_cells.ENCODINGS, "encoding", found)
    delimiter = _one_of(
        top.get("delimiter"),
        {
            **{name: sign for sign, name in csv_cells.DELIMITERS.items()},
            **dict(zip(",;\t", ",;\t", strict=True)),
        },
        "delimiter",
        found,
    )
    header_line = 1
    if "header_line" in top and (cell := scalar(top["header_line"], found, "header_line")):
        try:
            header_line = values.number(1, 10_000, "lines")(cell.text.strip())
        except values.Refused as refused:
            found.at(cell, refused.message, refused.remedy)
    rules: dict[str, Rule] = {}
    if "columns" not in top:
        found.add(
            1,
            1,
            "columns",
            "the mapping has no columns",
            "write which column has which value: columns: {serial: Serial No}",
        )
    else:
        for key, node in top["columns"].mapping(found, "columns", None).items():
            if schema.reader_of(key) is None:
                near = schema.nearest_key(key)
                found.add(
                    node.line,
                    node.column,
                    f"columns.{quoted(key)}",
                    "no such key is known",
                    f"write {near}" if near else "leave it out",
                )
            elif rule := _rule(node, key, found):
                rules[key] = rule
    if len(found):
        return None
    headings = tuple(dict.fromkeys(heading for rule in rules.values() for heading in rule.headings))
    return Mapping(found.file, tuple(rules.items()), headings, encoding, delimiter, header_line)


def _one_of(node: Node | None, known: Map[str, str] | tuple[str, ...], path: str, found: Findings) -> str:
    cell = scalar(node, found, path) if node else None
    if cell is None:
        return ""
    if cell.text not in known:
        near = nearest(cell.text, known)
        found.at(
            cell,
            f"no {path} '{quoted(cell.text)}' is known",
            f"write {near}"
            if near
            else "write one of " + ", ".join(name for name in known if name.isprintable()),
        )
        return ""
    return known[cell.text] if isinstance(known, dict) else cell.text


def _rule(node: Node, key: str, found: Findings) -> Rule | None:
    path = f"columns.{key}"
    if not node.is_mapping:
        cell = scalar(node, found, path)
        heading = " ".join(cell.text.split()) if cell else ""
        return Rule(f"{{{heading}}}", (heading,)) if heading and _fits(node, path, heading, found) else None
    parts = node.mapping(found, path, _RULES)
    ways = [way for way in ("column", "value", "template") if way in parts]
    if len(ways) != 1:
        found.add(
            node.line,
            node.column,
            path,
            f"has {' and '.join(ways) or 'neither column, value nor template'}",
            "write one of them",
        )
        return None
    cell = scalar(parts[ways[0]], found, f"{path}.{ways[0]}")
    if cell is None:
        return None
    template = cell.text
    if ways[0] == "value":
        if "{" in template or "}" in template:
            found.at(cell, "a brace in a value", "write template: instead of value:")
            return None
        headings: tuple[str, ...] = ()
    elif ways[0] == "column":
        heading = " ".join(template.split())
        if not _fits(node, path, heading, found):
            return None
        template, headings = f"{{{heading}}}", (heading,)
    else:
        template = _HOLE.sub(lambda hole: f"{{{' '.join(hole[1].split())}}}", template)
        headings = tuple(dict.fromkeys(_HOLE.findall(template)))
        if not headings or "" in headings:
            found.at(cell, "a template without a column", "write headings in braces: gpu-{Rack}-{Unit}")
            return None
    table: list[tuple[str, str]] = []
    if "values" in parts:
        for written, meant in parts["values"].mapping(found, f"{path}.values", None).items():
            if taken := scalar(meant, found, f"{path}.values.{quoted(written)}"):
                table.append((written, taken.text))
    number, multiply = _is_true(parts, "number", path, found), 1
    if "multiply" in parts and (said := scalar(parts["multiply"], found, f"{path}.multiply")):
        try:
            multiply = values.number(1, 1_000_000, "times")(said.text)
        except values.Refused as refused:
            found.at(said, refused.message, refused.remedy)
        if not number:
            found.at(said, "multiplies what is not a number", "write number: true beside it")
    lower = _is_true(parts, "lower", path, found)
    return Rule(template, headings, tuple(table), number, multiply, lower)


def _is_true(parts: Map[str, Node], key: str, path: str, found: Findings) -> bool:
    said = scalar(parts[key], found, f"{path}.{key}") if key in parts else None
    if said and said.text not in ("true", "false"):
        found.at(said, f"'{quoted(said.text)}' is not true or false", "write true or false")
    return said is not None and said.text == "true"


def _fits(node: Node, path: str, heading: str, found: Findings) -> bool:
    if "{" in heading or "}" in heading:
        found.add(node.line, node.column, path, "a brace in a heading", "rename that column in the list")
        return False
    return True
