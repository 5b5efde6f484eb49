# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the agent remembers, killed at every step."""

from __future__ import annotations

import json
import os
import tempfile
import typing as t
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._programs import _files
from hypothesis import given, settings
from hypothesis import strategies as st

from ironspan.gpud import events
from ironspan.gpud.events import Record
from ironspan.gpud.store import Content, Store

BOOT = "boot-1"
STEPS = ("open", "write", "fsync", "replace", "folder")


class Killed(BaseException):
    """The process ends here, as by kill -9: nothing after it runs."""


def killed_at(step: str, patch: pytest.MonkeyPatch) -> None:
    """Let the next write end at a step, its temporary file left as a kill leaves it."""
    patch.setattr(Path, "unlink", lambda *_, **__: None)
    if step == "open":
        patch.setattr(os, "open", _dies)
    elif step == "write":
        patch.setattr(os, "fchmod", _dies)
    elif step == "fsync":
        patch.setattr(os, "fsync", _dies)
    elif step == "replace":
        patch.setattr(Path, "replace", _dies)
    else:
        patch.setattr(_files, "_synchronise_folder", _dies)


def _dies(*_: object, **__: object) -> t.NoReturn:
    raise Killed


def line(content: Content, number: int) -> Content:
    """Return what is remembered after line ``number`` of the log, which tells of an XID."""
    new = Record(f"xid {number % 5}", "GPU-1", number, number, BOOT, source="kmsg")
    return replace(content, records=events.occurred(content.records, new), log={"number": number})


@settings(max_examples=60)
@given(st.lists(st.sampled_from([*STEPS, "", ""]), max_size=25))
def test_each_line_counts_once_however_often_the_agent_is_killed(kills: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder), BOOT)
        fates = iter(kills)
        number = 0
        while number < 20:
            fate = next(fates, "")
            try:
                with pytest.MonkeyPatch.context() as patch:
                    if fate:
                        killed_at(fate, patch)
                    store.change(lambda content: line(content, int(content.log.get("number", 0)) + 1))
            except Killed:
                store = Store(Path(folder), BOOT)
            number = int(store.content.log.get("number", 0))
        assert sum(record.count for record in store.content.records.values()) == 20
        assert [path.name for path in Path(folder).iterdir()] == ["events.json"] or fate == "folder"


def test_it_is_the_same_after_a_restart_and_history_after_a_boot(tmp_path: Path) -> None:
    store = Store(tmp_path, BOOT)
    for number in range(3):
        store.change(lambda content, number=number: line(content, number))  # type: ignore[misc]
    store.change(lambda content: replace(content, done={"id": {"ok": True}}, gpus={"GPU-1": {"index": 0}}))
    assert Store(tmp_path, BOOT).content == store.content
    after = Store(tmp_path, "boot-2").content
    assert (after.records, after.log, after.gpus) == ({}, {}, {})
    assert [record.event for record in after.history] == ["xid 0", "xid 1", "xid 2"]
    assert after.done == {"id": {"ok": True}}


def test_what_is_over_becomes_history_of_bounded_length(tmp_path: Path) -> None:
    store = Store(tmp_path, BOOT)
    for number in range(events.MOST_HISTORY + 10):
        store.change(lambda content, number=number: line(replace(content, records={}), number))  # type: ignore[misc]
    assert len(store.content.history) == events.MOST_HISTORY
    assert (tmp_path / "events.json").stat().st_size < 256 * 1024


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b'{"version": 2}', b"\xff", b'{"version": 1}']
)
def test_a_file_that_cannot_be_used_is_told_and_replaced(
    content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "events.json").write_bytes(content)
    store = Store(tmp_path, BOOT)
    assert "forgotten" in caplog.text
    store.change(lambda old: line(old, 1))
    assert json.loads((tmp_path / "events.json").read_text())["boot"] == BOOT


def test_nothing_is_written_where_nothing_changes(tmp_path: Path) -> None:
    store = Store(tmp_path, BOOT)
    store.change(lambda content: line(content, 1))
    before = (tmp_path / "events.json").stat().st_ino
    store.change(lambda content: content)
    store.change(lambda content: replace(content, log={"number": 1}))
    assert (tmp_path / "events.json").stat().st_ino == before
