# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The report over all certificates: what is due, what is wrong, and a table for people."""

from __future__ import annotations

import dataclasses
import datetime
import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.certificates.found import AUTHORITY, LEAF, Found
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.generations import Generations

ROWS_OF_A_KIND = 4
"""As many certificates of one kind are listed; of more only the first to end, and how many there are."""
HEADINGS = ("CERTIFICATE", "WHERE", "ENDS", "DAYS LEFT", "AUTHORITY", "RENEWED BY")


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """What was found.

    Args:
        site: name of the site.
        now: when.
        days: what ends within as many days is due.
        found: all certificates.
        problems: what is wrong beside that, one sentence each.
        generations: where each authority stands.
    """

    site: str
    now: datetime.datetime
    days: int
    found: Sequence[Found]
    problems: Sequence[str]
    generations: Mapping[str, Generations]

    @property
    def due(self) -> list[Found]:
        """Return what ends within the days asked for, the first to end first."""
        return [entry for entry in self._sorted() if entry.days_left(self.now) < self.days]

    @property
    def ok(self) -> bool:
        """Whether nothing is due and nothing is wrong."""
        return not self.due and not self.problems

    def as_json(self) -> dict[str, t.Any]:
        """Return everything for machines."""
        return {
            "site": self.site,
            "now": f"{self.now:%Y-%m-%dT%H:%M:%SZ}",
            "days": self.days,
            "ok": self.ok,
            "due": [entry.as_dict(self.now) for entry in self.due],
            "problems": list(self.problems),
            "certificates": [entry.as_dict(self.now) for entry in self._sorted()],
            "authorities": {name: state.as_dict() for name, state in self.generations.items()},
        }

    def as_text(self, everything: bool = False) -> str:
        """Return a table, a line a certificate; many of one kind are one line unless ``everything``."""
        groups: dict[tuple[str, str, int], list[Found]] = {}
        for entry in self._sorted():
            key = (entry.kind, entry.what, entry.generation)
            groups.setdefault(key, []).append(entry)
        rows: list[tuple[str, ...]] = [HEADINGS]
        for (kind, _, _), entries in groups.items():
            few = len(entries) <= ROWS_OF_A_KIND and kind == LEAF
            if everything or few:
                rows += [
                    self._row(entry, f"{entry.host}:{entry.path}" if everything else entry.host)
                    for entry in entries
                ]
            else:
                rows.append(self._row(entries[0], _places(entries)))
        widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, "", *self._summary()])

    def _summary(self) -> list[str]:
        due = self.due
        lines = [f"! {problem}" for problem in self.problems]
        lines += [
            f"! {name} is being changed: stage {state.stage} since {state.since}"
            for name, state in self.generations.items()
            if state.stage
        ]
        count = len(self.found)
        within = f"within {self.days} days"
        lines.append(f"{count} certificates, {len(due) or 'none'} due {within}")
        return lines

    def _sorted(self) -> list[Found]:
        return sorted(self.found, key=lambda entry: (entry.not_after, entry.what, entry.host))

    def _row(self, entry: Found, where: str) -> tuple[str, ...]:
        left = entry.days_left(self.now)
        mark = " expired" if left < 0 else " due" if left < self.days else ""
        generation = f" {entry.generation}" if entry.generation > 1 else ""
        return (
            entry.what,
            where,
            f"{entry.not_after:%Y-%m-%d %H:%M}",
            f"{left:.1f}{mark}" if abs(left) < 10 else f"{left:.0f}{mark}",
            f"{entry.authority or '?'}{generation}" if entry.generation else "not of this site",
            entry.renewed_by,
        )


def problems_of(
    answered: Mapping[str, bool],
    unreadable: Mapping[str, Sequence[str]],
    found: Sequence[Found],
    generations: Mapping[str, Generations],
) -> list[str]:
    """Say what is wrong beside what is due.

    Args:
        answered: whether each host of the inventory answered.
        unreadable: files of each host that hold no certificate.
        found: all certificates.
        generations: where each authority stands.
    """
    problems = [f"{host} did not answer" for host, yes in answered.items() if not yes]
    for host, paths in unreadable.items():
        problems += [f"{host}: {path} holds no certificate" for path in paths]
    for entry in found:
        known = generations.get(entry.authority)
        if known and entry.generation not in known.trusted:
            what = "trusts" if entry.kind == AUTHORITY else "has a certificate of"
            former = f"generation {entry.generation} of {entry.authority}, which was dropped"
            whom = former if entry.generation else "an authority that is not this site's"
            problems.append(f"{entry.host}: {entry.path} {what} {whom}")
    return problems


def _places(entries: Sequence[Found]) -> str:
    hosts = sorted({entry.host for entry in entries})
    return hosts[0] if len(hosts) == 1 else f"{len(hosts)} hosts, first {entries[0].host}"
