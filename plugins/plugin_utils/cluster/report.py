# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The result of a verification: for machines as JSON (schema 1), for people as a table."""

from __future__ import annotations

import dataclasses
import json
import typing as t
from collections.abc import Iterator, Sequence
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file

SCHEMA_VERSION = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked.

    Args:
        name: short, the same in every report.
        ok: the verdict; None when it was not run.
        summary: the evidence in a few words.
        problems: one sentence each, empty when ok.
        evidence: rows of measured values, all with the same keys.
        seconds: how long it took.
    """

    name: str
    ok: bool | None
    summary: str
    problems: Sequence[str] = ()
    evidence: Sequence[dict[str, t.Any]] = ()
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """Everything one verification found."""

    site: str
    started: str
    seconds: float
    checks: Sequence[Check]

    @property
    def ok(self) -> bool:
        """Tell whether nothing failed. A check that was not run does not count."""
        return all(check.ok is not False for check in self.checks)

    def as_json(self) -> dict[str, t.Any]:
        """Return the machine-readable form."""
        return {
            "schema": SCHEMA_VERSION,
            "kind": "verify",
            "site": self.site,
            "started": self.started,
            "seconds": round(self.seconds, 3),
            "ok": self.ok,
            "checks": [
                {
                    "name": check.name,
                    "ok": check.ok,
                    "summary": check.summary,
                    "problems": list(check.problems),
                    "evidence": list(check.evidence),
                    "seconds": round(check.seconds, 3),
                }
                for check in self.checks
            ],
        }

    def write(self, path: str | Path) -> None:
        """Write the machine-readable form, whole or not at all."""
        path = Path(path).expanduser()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, (json.dumps(self.as_json(), indent=2) + "\n").encode())

    def as_text(self) -> str:
        """Return the tables: one line a check, then the evidence of each."""
        words = {True: "ok", False: "FAILED", None: "not run"}
        rows = [
            {
                "check": check.name,
                "verdict": words[check.ok],
                "evidence": check.summary,
                "seconds": f"{check.seconds:.1f}",
            }
            for check in self.checks
        ]
        parts = [table(rows)]
        parts += [f"{check.name}:\n{table(check.evidence)}" for check in self.checks if check.evidence]
        wrong = [
            f"  {check.name}: {problem}"
            for check in self.checks
            if check.ok is False
            for problem in check.problems
        ]
        if wrong:
            parts.append("Problems:\n" + "\n".join(wrong))
        return "\n\n".join(parts)


def table(rows: Sequence[dict[str, t.Any]]) -> str:
    """Align rows with the same keys in columns, the keys as heading."""
    return "\n".join(_lines(rows))


def _lines(rows: Sequence[dict[str, t.Any]]) -> Iterator[str]:
    if not rows:
        return
    cells = [[str(name) for name in rows[0]], *([str(value) for value in row.values()] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
