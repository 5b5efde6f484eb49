# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How long the files of tests take: which begins first, what the folders may take, and what a run took.

tests/durations.yml has the seconds. ``python -m tests.support.durations REPORT...`` (make durations) writes
them again from JUnit reports, which `make test` leaves in build/junit; budgets are written by hand.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import heapq
import os
import pathlib
import sys
import typing as t
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping

import yaml

ROOT = pathlib.Path(__file__).parents[2]
FILE = ROOT / "tests" / "durations.yml"
UNIT = "tests/unit/"
HEAD = """\
---
# SPDX-License-Identifier: Apache-2.0
# Seconds of every file of tests (of tests/unit: of every folder), as one run of `make test` had them. They
# say which file begins first, and are held against the budgets. After such a run `make durations` writes them
# again, but for the budgets: who raises one takes the time from everybody.
"""


@dataclasses.dataclass(frozen=True)
class Durations:
    """What tests/durations.yml says.

    Args:
        measured: when and where that was.
        run: seconds that `make test` may take with warm caches on two cores.
        budgets: part of the tests -> seconds of its files together, as if one ran after the other.
        seconds: file of tests, or folder of unit tests -> seconds.
    """

    measured: str
    run: float
    budgets: dict[str, float]
    seconds: dict[str, float]

    def of(self, path: str) -> float:
        """Return the seconds of the file, or the folder of unit tests, that a test or path belongs to."""
        return self.seconds.get(unit_of(path), 0.0)

    def over(self, measured: Mapping[str, float]) -> list[str]:
        """Name the budgets that do not suffice, and by how much.

        Args:
            measured: file, or folder of unit tests -> seconds.
        """
        found = []
        for part, spent in parts(measured).items():
            if part not in self.budgets:
                found.append(f"{part}: tests/durations.yml has no budget for it")
            elif spent > self.budgets[part]:
                found.append(f"{part}: {spent:.0f} s, budget {self.budgets[part]:g} s")
        return found


def load(file: pathlib.Path = FILE) -> Durations:
    """Read the file."""
    data = yaml.safe_load(file.read_text(encoding="utf-8"))
    return Durations(data["measured"], data["run"], data["budgets"], data["seconds"])


def unit_of(path: str) -> str:
    """Return what has a figure of its own: a file of tests, or its folder where that is one of unit tests.

    Args:
        path: from the project's root; what follows ``::`` is left out.
    """
    file = path.partition("::")[0]
    if file.startswith(UNIT) and file.count("/") > UNIT.count("/"):
        return "/".join(file.split("/")[:3])
    return file


def parts(seconds: Mapping[str, float]) -> dict[str, float]:
    """Add seconds up by what has a budget: tests/unit, tests/integration, tests/bench."""
    found: dict[str, float] = collections.defaultdict(float)
    for path, spent in seconds.items():
        found["/".join(path.split("/")[:2])] += spent
    return dict(found)


def together(seconds: Iterable[float], workers: int) -> float:
    """Return when the last of some workers has done everything, each of which takes the next one when it can.

    Args:
        seconds: of each file, in the order in which they are taken.
        workers: how many there are.
    """
    busy = [0.0] * workers
    for spent in seconds:
        heapq.heapreplace(busy, busy[0] + spent)
    return max(busy)


def read(report: str) -> dict[str, float]:
    """Add up the seconds of a JUnit report by file, or folder of unit tests."""
    found: dict[str, float] = collections.defaultdict(float)
    for case in ElementTree.fromstring(report).iter("testcase"):
        if name := case.get("classname"):
            words = name.split(".")
            # A test in a class has that after its file.
            last = max(n for n, word in enumerate(words) if word.startswith("test_") or n == 0)
            file = "/".join(words[: last + 1]) + ".py"
            found[unit_of(file)] += float(case.get("time", 0))
    return dict(found)


def table(measured: Mapping[str, float], listed: Durations, most: int = 12) -> list[str]:
    """Return lines that say what took long: files, what tests/durations.yml says of them, and the parts."""
    lines = [f"{'measured':>9} {'listed':>8}"]
    for path, spent in sorted(measured.items(), key=lambda item: -item[1])[:most]:
        lines.append(f"{spent:8.0f}s {listed.of(path):7.0f}s {path}")
    for part, spent in sorted(parts(measured).items()):
        lines.append(f"{spent:8.0f}s {listed.budgets.get(part, 0):7.0f}s {part}: all of it, and its budget")
    return lines


def write(measured: Mapping[str, float], former: Durations, file: pathlib.Path = FILE) -> None:
    """Write the file with other seconds; what no longer exists goes.

    Args:
        measured: what was run; the others keep what they have.
        former: the budgets, and the seconds of those that were not run.
        file: where to.
    """
    seconds = former.seconds | {path: round(spent, 1) for path, spent in measured.items()}
    where = f"{datetime.date.today()}, {os.cpu_count()} cores"
    content: dict[str, t.Any] = {"measured": where, "run": former.run, "budgets": former.budgets}
    content["seconds"] = {path: seconds[path] for path in sorted(seconds) if (ROOT / path).exists()}
    file.write_text(HEAD + yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


def main(reports: list[str]) -> None:
    """Write tests/durations.yml from JUnit reports, and say what they took."""
    measured: dict[str, float] = {}
    for report in reports:
        measured |= read(pathlib.Path(report).read_text(encoding="utf-8"))
    former = load()
    write(measured, former)
    print("\n".join([*table(measured, former, most=30), *former.over(measured)]))


if __name__ == "__main__":
    main(sys.argv[1:])
