# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A file with one line a server: our columns, or a vendor's by a mapping; rows become records."""

from __future__ import annotations

from collections.abc import Mapping as Map
from collections.abc import Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import csv_cells, schema
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.mapping import Mapping
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.problems import (
    Cell,
    Findings,
    quoted,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest

MOST_COLUMNS = 500
Record = dict[str, Cell]
"""What is written about one server, or several with ranges: key to cell. Empty cells are not in it."""


def records_of_csv(data: bytes, mapping: Mapping | None, found: Findings) -> list[Record]:
    """Return what a CSV file says, one record a line.

    Args:
        data: the file's bytes.
        mapping: what the columns of somebody else's list mean; None when they are ours.
        found: takes the problems.
    """
    text = csv_cells.decoded(data, mapping.encoding if mapping else "", found)
    if text is None:
        return []
    skipped = mapping.header_line - 1 if mapping else 0
    first_line = 1
    if skipped:
        lines = text.splitlines(keepends=True)
        text, first_line = "".join(lines[skipped:]), skipped + 1
    told, text, first_line = _told_delimiter(text, first_line)
    delimiter = (mapping.delimiter if mapping else "") or told or _likely_delimiter(text)
    rows = csv_cells.rows(text, delimiter, found, first_line)
    if not rows:
        found.add(
            0,
            0,
            "",
            "the file has no line with a heading",
            "write the names of the columns into the first line",
        )
        return []
    headings = [_heading(cell) for cell in rows[0]]
    if mapping:
        return _mapped(rows, headings, mapping, found)
    keys = _keys(rows[0], headings, found)
    return [record for row in rows[1:] if (record := _record(row, keys, len(headings), found))]


def _told_delimiter(text: str, line: int) -> tuple[str, str, int]:
    """Return the delimiter that a first line ``sep=;`` names, and the text after it."""
    first, newline, rest = text.partition("\n")
    told = first.strip("\r").strip('"')
    if told[:4].lower() == "sep=" and told[4:] in csv_cells.DELIMITERS and newline:
        return told[4:], rest, line + 1
    return "", text, line


def _likely_delimiter(text: str) -> str:
    """Return the delimiter that the heading has most of."""
    heading = next(
        (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")), ""
    )
    return max(csv_cells.DELIMITERS, key=heading.count)


def _heading(cell: Cell) -> str:
    return " ".join(cell.text.split())


def _keys(row: Sequence[Cell], headings: Sequence[str], found: Findings) -> list[str]:
    """Return the key of every column of our own, "" for one that is not known."""
    if len(headings) > MOST_COLUMNS:
        found.add(row[0].line, 0, "", f"{len(headings)} columns", f"write at most {MOST_COLUMNS}")
        return []
    keys: list[str] = []
    for cell, heading in zip(row, headings, strict=True):
        key = heading.lower()
        place = cell._replace(path=quoted(heading) or "heading")
        if key and schema.reader_of(key) is None:
            near = schema.nearest_key(heading)
            found.at(
                place,
                f"no column '{quoted(heading)}' is known",
                f"write {near}" if near else "leave it out, or name what it means in a mapping",
            )
            key = ""
        elif key in keys:
            found.at(place, "the column is there twice", "keep one of them")
            key = ""
        keys.append(key)
    return keys


def _record(row: Sequence[Cell], keys: Sequence[str], width: int, found: Findings) -> Record:
    _no_more_cells(row, width, found)
    return {
        key: Cell(cell.text, cell.line, cell.column, key)
        for key, cell in zip(keys, row, strict=False)
        if key and cell.text and not cell.text.isspace()
    }


def _no_more_cells(row: Sequence[Cell], width: int, found: Findings) -> None:
    over = next((cell for cell in row[width:] if cell.text.strip()), None)
    if over:
        found.at(
            over,
            f"the line has {len(row)} cells, and the heading {width}",
            "put a value with a delimiter in it into quotes",
        )


def _mapped(
    rows: Sequence[Sequence[Cell]], headings: Sequence[str], mapping: Mapping, found: Findings
) -> list[Record]:
    """Return the records of somebody else's columns."""
    columns: dict[str, int] = {}
    for index, heading in enumerate(headings):
        if heading in columns and heading in mapping.headings:
            found.at(
                rows[0][index]._replace(path=quoted(heading)), "the column is there twice", "keep one of them"
            )
        columns.setdefault(heading, index)
    missing = [heading for heading in mapping.headings if heading not in columns]
    for heading in missing:
        near = nearest(heading, columns)
        found.add(
            rows[0][0].line,
            0,
            quoted(heading),
            f"no such column, which {mapping.name} names",
            f"write '{quoted(near)}' there" if near else f"write one of {quoted(', '.join(columns))} there",
        )
    if missing:
        return []
    records = []
    for row in rows[1:]:
        _no_more_cells(row, len(headings), found)
        cells: Map[str, Cell] = {
            heading: row[index]._replace(path=heading)
            for heading in mapping.headings
            if (index := columns[heading]) < len(row)
        }
        record = mapping.record(cells, row[0], found)
        if record:
            records.append(record)
    return records
