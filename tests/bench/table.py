# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The table of measured costs: benches add rows, the page in docs/ is written from them."""

from __future__ import annotations

import dataclasses
import datetime
import os
import pathlib
import platform

HEAD = """\
<!-- Written by `make bench`; do not edit. -->

# Measured costs

A row with a budget is asserted: by `make test` for two hosts and for 20 workers, by `make bench` for all of
them. Ratios have both sides measured in the same run; CPU is in CPU-seconds, the least of the runs where
there are several, because other work on the machine only adds to it. What the figures mean for a site, and
how they were measured: [scale.md](scale.md).
"""
MEASURED = "Measured {date} on {machine}."


@dataclasses.dataclass(frozen=True)
class Row:
    """One measured figure and its budget."""

    what: str
    budget: str
    measured: str
    note: str = ""


class Table:
    """Collects rows in the order in which they come."""

    def __init__(self) -> None:
        self.sections: dict[str, list[Row]] = {}
        self._over: list[str] = []

    def add(
        self, section: str, what: str, measured: float, budget: float, unit: str = "", note: str = ""
    ) -> None:
        """Note a figure; one over its budget makes ``check`` fail."""
        tail = f" {unit}" if unit else ""
        self.sections.setdefault(section, []).append(
            Row(what, f"<= {budget:g}{tail}", f"{measured:.3g}{tail}", note)
        )
        if measured > budget:
            self._over.append(f"{section}: {what}: {measured:.3g}{tail}, budget {budget:g}{tail}")

    def note(self, section: str, what: str, measured: str, note: str = "") -> None:
        """Note a figure that has no budget of its own."""
        self.sections.setdefault(section, []).append(Row(what, "", measured, note))

    def check(self) -> None:
        """Fail, naming every figure that was added since the last check and is over its budget."""
        over, self._over = self._over, []
        assert not over, "\n".join(over)

    def lines(self) -> list[str]:
        """Return the figures for a terminal."""
        return [
            f"{section}: {row.what}: {row.measured}" + (f" (budget {row.budget})" if row.budget else "")
            for section, rows in self.sections.items()
            for row in rows
        ]

    def parts(self) -> dict[str, str]:
        """Return title and text of the sections that were measured."""
        machine = (
            f"{os.cpu_count()} cores, Linux {platform.release().partition('-')[0]}, {platform.machine()}"
        )
        measured = MEASURED.format(date=datetime.datetime.now(datetime.UTC).date(), machine=machine)
        found = {}
        for section, rows in self.sections.items():
            lines = [measured, "", "| what | measured | budget | |", "|---|---|---|---|"]
            lines += [f"| {row.what} | {row.measured} | {row.budget} | {row.note} |" for row in rows]
            found[section] = "\n".join(lines)
        return found

    def text(self, before: str = "") -> str:
        """Return the page.

        Args:
            before: the page as it was; sections that were not measured this time are kept from it.
        """
        parts = {**sections_of(before), **self.parts()}
        return HEAD + "".join(f"\n## {title}\n\n{part}\n" for title, part in parts.items())

    def write(self, path: pathlib.Path) -> None:
        """Write the page, or those sections of it that were measured."""
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        path.write_text(self.text(before), encoding="utf-8")


def sections_of(page: str) -> dict[str, str]:
    """Return title and text of the sections of a page that say when they were measured."""
    found = {}
    for block in page.split("\n## ")[1:]:
        title, _, text = block.partition("\n")
        if text.strip().startswith(MEASURED.partition(" ")[0]):
            found[title.strip()] = text.strip()
    return found
