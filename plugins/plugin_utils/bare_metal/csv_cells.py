# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""CSV as people and spreadsheets write it: bytes to rows of cells, each with its line and column.

Python's own reader does not say where a cell begins, and takes what follows a closing quote as part of it.
"""

from __future__ import annotations

import codecs
import re

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.problems import (
    Cell,
    Findings,
    quoted,
)

LARGEST = 64 * 1024 * 1024
"""Bytes of one file."""
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab"}
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
ENCODINGS = (
    "utf-8", "utf-16", "cp1250", "cp1251", "cp1252", "cp932", "iso-8859-1", "iso-8859-2", "iso-8859-15",
    "shift_jis", "euc_jp", "euc_kr", "gb18030", "big5",
)  # fmt: skip
_WORKBOOK = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
_PLAIN = {delimiter: re.compile(f"[^{delimiter}\r\n]*") for delimiter in DELIMITERS}
_END = re.compile("\r\n|\r|\n")


def decoded(data: bytes, encoding: str, found: Findings) -> str | None:
    """Return the text of a file, None when it has a problem.

    Args:
        data: the file's bytes.
        encoding: one of ENCODINGS; "" for UTF-8. A byte order mark of UTF-8 or UTF-16 has the last word.
        found: takes the problem.
    """
    if len(data) > LARGEST:
        found.add(0, 0, "", f"{len(data)} bytes", f"write files of at most {LARGEST // 1024 // 1024} MiB")
        return None
    if data.startswith(_WORKBOOK):
        found.add(1, 1, "", "this is a workbook of a spreadsheet", "save it as CSV UTF-8")
        return None
    for mark, marked in _MARKS:
        if data.startswith(mark):
            data, encoding = data[len(mark) :], marked
            break
    try:
        text = data.decode(encoding or "utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode(encoding or "utf-8", "replace")
        line, column = _place(before)
        found.add(
            line,
            column,
            "",
            f"byte 0x{data[error.start]:02x} is not {encoding or 'UTF-8'}",
            "save the file as UTF-8, or name its encoding in the mapping (encoding: cp1252)",
        )
        return None
    if "\0" in text:
        line, column = _place(text[: text.index("\0")])
        found.add(
            line,
            column,
            "",
            "the file has a NUL character",
            "save it as CSV UTF-8, or with a byte order mark",
        )
        return None
    return text


def _place(before: str) -> tuple[int, int]:
    """Return line and column of what follows a text."""
    lines = _END.split(before)
    return len(lines), len(lines[-1]) + 1


def rows(text: str, delimiter: str, found: Findings, first_line: int = 1) -> list[list[Cell]]:
    """Return the rows of a text; those with nothing in them, and comments (#), are left out.

    Args:
        text: the file.
        delimiter: what stands between cells: one of DELIMITERS.
        found: takes the problems: text after a closing quote, and a quote that is not closed.
        first_line: the line that the text begins with.
    """
    taken: list[list[Cell]] = []
    row: list[Cell] = []
    plain = _PLAIN[delimiter]
    position, line, start = 0, first_line, 0  # `start` is where the line begins
    length = len(text)
    while position <= length:
        column, begun = position - start + 1, line
        if text.startswith('"', position):
            value, position, line, start = _quoted_cell(text, position, line, start, found)
            rest = plain.match(text, position)
            after = rest[0] if rest else ""
            if after.strip():
                found.add(
                    line,
                    position - start + 1,
                    "",
                    f"'{quoted(after.strip())}' follows a closing quote",
                    'write a quote inside a quoted cell twice: ""',
                )
            position += len(after)
        else:
            match = plain.match(text, position)
            value = match[0] if match else ""
            position += len(value)
        row.append(Cell(value, begun, column, ""))
        if position < length and text[position] == delimiter:
            position += 1
            continue
        if any(cell.text.strip() for cell in row) and not row[0].text.lstrip().startswith("#"):
            taken.append(row)
        row = []
        if position >= length:
            break
        position += 2 if text.startswith("\r\n", position) else 1
        line, start = line + 1, position
        if position >= length:
            break
    return taken


def _quoted_cell(
    text: str, position: int, line: int, start: int, found: Findings
) -> tuple[str, int, int, int]:
    """Return the cell that begins with the quote at a position, and where things stand after it."""
    opened = (line, position - start + 1)
    pieces: list[str] = []
    position += 1
    while True:
        end = text.find('"', position)
        if end < 0:
            found.add(
                *opened,
                "",
                "a quote opens here and is not closed",
                'close it, or write it twice ("") inside quotes',
            )
            pieces.append(text[position:])
            end = len(text)
        else:
            pieces.append(text[position:end])
        for match in _END.finditer(text, position, end):
            line, start = line + 1, match.end()
        position = min(end + 1, len(text))
        if not text.startswith('"', position):
            return "".join(pieces), position, line, start
        pieces.append('"')
        position += 1
