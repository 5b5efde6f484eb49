# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a site: one sentence, where it is written, and what to write instead."""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import typing as t
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

OF_A_KIND = 5
"""Problems that are alike and are said one by one."""
MOST_LINES = 200
LONGEST_LINE = 1000
"""Characters; the middle of a longer one is left out."""
_PARTICULAR = re.compile(r"[\w.-]*\d[\w.:-]*|'[^']*'|\bhost \S+")
"""What differs between problems of one kind: names with numbers, quoted values, hosts."""


class Place(t.NamedTuple):
    """A line of a file that somebody can edit. Lines count from 1; 0 means that only the file is known."""

    file: str
    line: int


@dataclasses.dataclass(frozen=True, order=True, slots=True)
class Problem:
    """One thing to correct.

    Args:
        file: absolute path of the file, or a description such as ``<command line>``.
        line: line in that file, from 1; 0 when not known.
        path: what is meant, for example ``site_labels.rack`` or ``groups.etcd``.
        message: what is wrong, without a full stop.
        remedy: what to write instead, an imperative clause.
    """

    file: str
    line: int
    path: str
    message: str
    remedy: str

    def __str__(self) -> str:
        line = f":{self.line}" if self.line else ""
        return f"{shown(self.file)}{line}: {self.path}: {self.message}; {self.remedy}"

    def as_dict(self) -> dict[str, str | int]:
        """Return the problem for a machine-readable report."""
        return dataclasses.asdict(self)


class SiteError(Exception):
    """A site, or a document made from it, has problems; all of them are in ``problems``."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        super().__init__(listed(self.problems))


class Problems:
    """Collects problems; the same one found through two hosts is kept once."""

    def __init__(self) -> None:
        self._found: dict[Problem, None] = {}

    def add(self, place: Place, path: str, message: str, remedy: str) -> None:
        """Record one problem at a place."""
        self._found[Problem(place.file, place.line, path, message, remedy)] = None

    def extend(self, problems: Iterable[Problem]) -> None:
        """Record problems that were found elsewhere."""
        self._found.update(dict.fromkeys(problems))

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[Problem]:
        return iter(sorted(self._found))


class Once:
    """Adds what one check finds, once for each line that has it, though many hosts share the line.

    Their messages differ by the host that they name, so the collection would keep them all.
    """

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._said: set[tuple[Place, str, str]] = set()

    def add(self, place: Place, path: str, message: str, remedy: str, *, what: str = "") -> None:
        """Record one problem, unless one was recorded of this line and path.

        Args:
            place: the line.
            path: what is meant there.
            message: what is wrong.
            remedy: what to write instead.
            what: tells two problems of one line and path apart where both are to be said.
        """
        if (place, path, what) not in self._said:
            self._said.add((place, path, what))
            self._problems.add(place, path, message, remedy)


def said_of(problems: Sequence[Problem], where: str = "the inventory") -> str:
    """Return the message of a run that is refused.

    Args:
        problems: at least one, in the order in which they are said.
        where: what has them.
    """
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return f"{count} in {where}; no host was contacted.\n{listed(problems)}"


def listed(problems: Iterable[Problem]) -> str:
    """Return problems as lines: the first few of each kind, and how many more there are, and where.

    A mistake in a template of hosts is there thousands of times; a message of megabytes is lost on its way.

    Args:
        problems: in the order in which they are said.
    """
    kinds: dict[tuple[str, ...], list[Problem]] = {}
    for problem in problems:
        kind = (problem.file, *(_PARTICULAR.sub("#", text) for text in (problem.path, problem.message)))
        kinds.setdefault(kind, []).append(problem)
    lines: list[str] = []
    for alike in kinds.values():
        lines += [_cut(str(problem)) for problem in alike[:OF_A_KIND]]
        if more := alike[OF_A_KIND:]:
            until = f"lines {more[0].line} to {more[-1].line} of {shown(more[0].file)}"
            lines.append(f"  and {len(more)} more of this kind, {until}")
    if len(lines) > MOST_LINES:
        lines[MOST_LINES:] = [f"and {len(lines) - MOST_LINES} lines more; correct these first"]
    return "\n".join(lines)


def _cut(text: str) -> str:
    if len(text) <= LONGEST_LINE:
        return text
    half = LONGEST_LINE // 2
    return f"{text[:half]} [...] {text[-half:]}"


def shown(file: str) -> str:
    """Return a path as people want to read it: relative when it is below the working folder."""
    if not file.startswith(os.sep):
        return file
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return file


def named(place: Place) -> str:
    """Return a place as people want to read it in a message about another one."""
    return f"{shown(place.file)}:{place.line}" if place.line else shown(place.file)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that looks most like ``name``, None when none is close.

    One that differs in its case alone is nearer than any other.
    """
    known = list(known)
    same = next((each for each in known if each.casefold() == name.casefold()), None)
    if same is not None:
        return same
    matches = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return matches[0] if matches else None
