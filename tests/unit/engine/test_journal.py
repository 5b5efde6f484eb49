# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The journal: torn lines are cut off, replaying is repeatable, state.json follows from it."""

from __future__ import annotations

import json
import os
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.crash import VARIABLE, CrashPoints
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.journal import (
    History,
    Journal,
    parse_journal,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.store import State
from hypothesis import given
from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "b", "c"])
CHANGE = {"action": "update", "before": {}, "after": {}, "reason": ""}


def steps() -> st.SearchStrategy[list[dict[str, t.Any]]]:
    """Records of a transaction in any order that a journal may hold."""
    middle = st.lists(
        st.one_of(
            NAMES.map(
                lambda name: {"step": "start", "id": name, "kind": "file", "spec": {}, "change": CHANGE}
            ),
            NAMES.map(lambda name: {"step": "done", "id": name}),
            NAMES.map(lambda name: {"step": "backup", "id": name, "path": f"/{name}", "what": "absent"}),
            st.tuples(NAMES, st.text()).map(
                lambda pair: {"step": "notes", "values": {pair[0]: {"t": pair[1]}}}
            ),
        ),
        max_size=12,
    )
    end = st.sampled_from([[], [{"step": "commit", "settled": ["a", "b"], "owned": {"a": ["/a"]}}]])
    return st.tuples(middle, end).map(lambda parts: [{"step": "begin", "serial": 5}, *parts[0], *parts[1]])


def encoded(records: list[dict[str, t.Any]]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


@given(steps(), st.data())
def test_a_torn_journal_reads_as_its_whole_lines(
    records: list[dict[str, t.Any]], data: st.DataObject
) -> None:
    whole = encoded(records)
    cut = data.draw(st.integers(0, len(whole)))
    read, length = parse_journal(whole[:cut])
    assert read == records[: len(read)]
    assert length == len(encoded(read))
    assert length <= cut
    assert len(read) == len(records) or cut - length < len(encoded([records[len(read)]]))


@given(st.binary(max_size=200), steps())
def test_rubbish_after_the_journal_is_ignored(rubbish: bytes, records: list[dict[str, t.Any]]) -> None:
    read, _ = parse_journal(encoded(records) + b"\x00" + rubbish)
    assert read == records


@given(steps())
def test_history_is_the_same_read_at_once_or_step_by_step(records: list[dict[str, t.Any]]) -> None:
    grown = History([])
    for record in records:
        grown.add(record)
    assert vars(grown) == vars(History(records))


@given(steps())
def test_folding_twice_is_folding_once(records: list[dict[str, t.Any]]) -> None:
    state = State({"serial": 4, "changed": {"a": 2, "x": 1}, "settled": {"b": 3}})
    state.fold(History(records))
    once = json.dumps(state.data(), sort_keys=True)
    state.fold(History(records))
    assert json.dumps(state.data(), sort_keys=True) == once
    committed = any(record["step"] == "commit" for record in records)
    assert state.serial == (5 if committed else 4)
    if committed:
        started = {record["id"] for record in records if record["step"] == "start"}
        assert {name for name, serial in state.changed.items() if serial == 5} == started


def test_writing_goes_on_after_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "open.jsonl"
    path.write_bytes(b'{"step":"begin","serial":1}\n{"step":"sta')
    journal = Journal(str(path), CrashPoints(str(tmp_path)))
    journal.open()
    journal.write("done", id="a")
    journal.close()
    assert parse_journal(path.read_bytes())[0] == [
        {"step": "begin", "serial": 1},
        {"step": "done", "id": "a"},
    ]


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "open.jsonl"
    journal = Journal(str(path), CrashPoints(str(tmp_path)))
    journal.open()
    journal.write("begin", serial=1)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            journal.write("start", id="a")
    journal.write("rollback", reason="full")
    journal.close()
    assert [record["step"] for record in parse_journal(path.read_bytes())[0]] == ["begin", "rollback"]


def test_the_hook_is_deaf_on_a_real_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    points = CrashPoints("/")
    points.reach()
    assert (points.reached, points.armed) == (1, False)
