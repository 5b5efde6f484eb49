# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The restore drill: a backup goes into a scratch database, which is compared with the live one, row by row.

Ironic goes on meanwhile, so the two differ in what moved since. Each row says when it was last written, by
the clock of this host; one that was not written since the backup has to be in both, and the same.
"""

from __future__ import annotations

import dataclasses
import datetime
import typing as t
from collections.abc import Mapping

from ironspan.ironic.database import Database, Row, Tables

MARGIN_S = 2.0
"""Times in the database have whole seconds, and are taken before their row is written."""
WRITTEN = ("updated_at", "created_at")
Rows = dict[Row, Mapping[str, t.Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """How a drill went.

    Args:
        tables: how many there are.
        rows: how many of the backup are in the live database, and the same.
        moved: how many rows were made, written or deleted since.
        wrong: what must not differ and does, in words.
    """

    tables: int
    rows: int
    moved: int
    wrong: list[str]


def compare(restored: Database, live: Database, created: float) -> Verdict:
    """Compare a restored database with the live one.

    Args:
        restored: from the backup.
        live: Ironic's own.
        created: when the backup was begun, Unix time.
    """
    ours, theirs = restored.tables(), live.tables()
    wrong = [f"the backup has no table {name}" for name in sorted(set(theirs) - set(ours))]
    wrong += [f"table {name} is not there any more" for name in sorted(set(ours) - set(theirs))]
    wrong += [
        f"table {name} has other columns"
        for name in sorted(set(ours) & set(theirs))
        if ours[name] != theirs[name]
    ]
    if wrong:
        return Verdict(len(theirs), 0, 0, wrong)
    rows = moved = 0
    for name in theirs:
        # The backup's first: what is deleted meanwhile counts as moved, not as missing.
        kept = _rows(restored, name, ours)
        now = _rows(live, name, theirs)
        for key in kept.keys() | now.keys():
            one, other = kept.get(key), now.get(key)
            if one is not None and one == other:
                rows += 1
            elif other is None or _written(other) >= created - MARGIN_S:
                moved += 1
            else:
                what = "is not in the backup" if one is None else "differs, and was not written since"
                wrong.append(f"table {name}: row {_shown(key)} {what}")
    return Verdict(len(theirs), rows, moved, wrong)


def _rows(database: Database, table: str, tables: Tables) -> Rows:
    names, keys = tables[table]
    found: Rows = {}
    for row in database.rows(table):
        entry = dict(zip(names, row, strict=True))
        # Without a primary key a row is what it is of.
        found[tuple(entry[key] for key in keys) if keys else tuple(map(repr, row))] = entry
    return found


def _written(row: Mapping[str, t.Any]) -> float:
    """Return when a row was last written, Unix time; 0 where it does not say."""
    times = [_time(row[name]) for name in WRITTEN if row.get(name)]
    return max(times, default=0.0)


def _time(value: t.Any) -> float:
    if not isinstance(value, datetime.datetime):
        value = datetime.datetime.fromisoformat(str(value))
    return float(value.replace(tzinfo=datetime.UTC).timestamp())


def _shown(key: Row) -> str:
    return ", ".join(str(part)[:40] for part in key)
