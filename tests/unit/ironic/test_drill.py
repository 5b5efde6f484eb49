# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A restored database against the live one: what moved since may differ, nothing else."""

from __future__ import annotations

import datetime
import typing as t
from collections.abc import Iterator

import pytest

from ironspan.ironic import drill

CREATED = 1_800_000_000.0
BEFORE, SINCE = CREATED - 3600, CREATED + 60
Tables = dict[str, list[dict[str, t.Any]]]


def at(unix: float) -> str:
    return datetime.datetime.fromtimestamp(unix, datetime.UTC).replace(tzinfo=None).isoformat(" ")


def node(identifier: int, written: float = BEFORE, **fields: t.Any) -> dict[str, t.Any]:
    return {
        "id": identifier,
        "name": f"n{identifier}",
        "created_at": at(BEFORE),
        "updated_at": at(written),
        **fields,
    }


class Fake:
    """A database of dictionaries; ``id`` is the primary key where there is one."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def tables(self) -> dict[str, tuple[list[str], list[str]]]:
        return {
            name: (list(rows[0]), ["id"] if "id" in rows[0] else []) for name, rows in self._tables.items()
        }

    def rows(self, table: str) -> Iterator[tuple[t.Any, ...]]:
        yield from (tuple(row.values()) for row in self._tables[table])


def judged(restored: Tables, live: Tables) -> drill.Verdict:
    return drill.compare(t.cast(t.Any, Fake(restored)), t.cast(t.Any, Fake(live)), CREATED)


@pytest.mark.parametrize(
    ("restored", "live", "rows", "moved"),
    [
        ([node(1), node(2)], [node(2), node(1)], 2, 0),
        ([node(1), node(2)], [node(1), node(2, SINCE, name="other")], 1, 1),
        ([node(1)], [node(1), node(2, SINCE)], 1, 1),
        ([node(1), node(2)], [node(1)], 1, 1),
        # Written in the second in which the backup began.
        ([node(1)], [node(1, CREATED - 1, name="other")], 0, 1),
    ],
)
def test_what_moved_since_may_differ(
    restored: list[dict[str, t.Any]], live: list[dict[str, t.Any]], rows: int, moved: int
) -> None:
    verdict = judged({"nodes": restored}, {"nodes": live})
    assert (verdict.wrong, verdict.rows, verdict.moved) == ([], rows, moved)


@pytest.mark.parametrize(
    ("restored", "live", "wrong"),
    [
        (
            {"nodes": [node(1)]},
            {"nodes": [node(1, name="x")]},
            "table nodes: row 1 differs, and was not written since",
        ),
        ({"nodes": [node(1)]}, {"nodes": [node(1), node(2)]}, "table nodes: row 2 is not in the backup"),
        ({"nodes": [node(1)]}, {"nodes": [node(1)], "ports": [node(1)]}, "the backup has no table ports"),
        ({"nodes": [node(1)], "ports": [node(1)]}, {"nodes": [node(1)]}, "table ports is not there any more"),
        ({"nodes": [node(1)]}, {"nodes": [node(1, extra=1)]}, "table nodes has other columns"),
        (
            {"a": [{"name": "x"}]},
            {"a": [{"name": "x"}, {"name": "y"}]},
            "table a: row 'y' is not in the backup",
        ),
    ],
)
def test_what_was_there_before_may_not(restored: Tables, live: Tables, wrong: str) -> None:
    assert judged(restored, live).wrong == [wrong]


def test_times_may_be_text_or_what_a_driver_makes_of_them() -> None:
    time = datetime.datetime.fromtimestamp(SINCE, datetime.UTC).replace(tzinfo=None)
    assert judged({"n": [node(1)]}, {"n": [node(1, name="x") | {"updated_at": time}]}).moved == 1
