# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is wrong in a file of expected servers: like the problems of a site, and with the column."""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Problem, shown

MOST = 1000
"""Problems of one file that are kept; the others are counted."""
_LONGEST = 60


@dataclasses.dataclass(frozen=True, slots=True)
class CellProblem(Problem):
    """One thing to correct at a line and column (from 1; 0 when not known)."""

    column: int = 0

    def __str__(self) -> str:
        place = "".join(f":{number}" for number in (self.line, self.column) if number)
        path = f"{self.path}: " if self.path else ""
        return f"{shown(self.file)}{place}: {path}{self.message}; {self.remedy}"


class Cell(t.NamedTuple):
    """A value as it is written.

    Args:
        text: what is written there, without quotes.
        line: where it begins, from 1.
        column: where it begins, in characters from 1.
        path: what a reader calls it: a column's heading or a path of YAML keys.
    """

    text: str
    line: int
    column: int
    path: str


class Findings:
    """Collects the problems of one file; the same one is kept once."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._found: dict[CellProblem, None] = {}
        self._more = 0

    def add(self, line: int, column: int, path: str, message: str, remedy: str) -> None:
        """Record one problem."""
        if len(self._found) >= MOST:
            self._more += 1
        else:
            self._found[CellProblem(self.file, line, path, message, remedy, column)] = None

    def at(self, cell: Cell, message: str, remedy: str) -> None:
        """Record one problem of a cell."""
        self.add(cell.line, cell.column, cell.path, message, remedy)

    def __len__(self) -> int:
        return len(self._found) + self._more

    def __iter__(self) -> Iterator[CellProblem]:
        yield from sorted(self._found, key=lambda problem: (problem.line, problem.column, problem.path))
        if self._more:
            yield CellProblem(self.file, 0, "", f"{self._more} more problems", "correct these first")


def quoted(text: str, longest: int = _LONGEST) -> str:
    """Return what somebody wrote for a message: short, on one line, and without characters that act."""
    short = text if len(text) <= longest else f"{text[:longest]}..."
    if short.isprintable():
        return short
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in short)
