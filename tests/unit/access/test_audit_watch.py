# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which events of an audit log raise the alarm, and that none is missed over rotations and restarts."""

from __future__ import annotations

import itertools
import json
import os
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._programs import audit_watch
from hypothesis import given, settings
from hypothesis import strategies as st

SEALED = {"username": "ironspan:break-glass:01", "groups": ["ironspan:break-glass", "system:authenticated"]}
SOMEBODY = {"username": "ada", "groups": ["team", "system:authenticated"]}
WHEN = "2026-11-22T10:00:00.123456Z"
NUMBERS = itertools.count()
"""Requests have different identities."""


def event(
    user: dict[str, t.Any] = SEALED, stage: str = "ResponseComplete", **more: t.Any
) -> dict[str, t.Any]:
    return {
        "kind": "Event",
        "auditID": f"a{next(NUMBERS)}",
        "stage": stage,
        "verb": "delete",
        "requestURI": "/api/v1/namespaces/kube-system/pods/x",
        "user": user,
        "sourceIPs": ["192.0.2.7"],
        "requestReceivedTimestamp": WHEN,
        "responseStatus": {"code": 200},
        "annotations": {"authorization.k8s.io/decision": "allow"},
        **more,
    }


@pytest.mark.parametrize(
    ("given_event", "told"),
    [
        (event(), True),
        (event(stage="ResponseStarted", verb="watch"), True),
        (event(stage="Panic"), True),
        (event(stage="RequestReceived"), False),
        (event(SOMEBODY), False),
        (event({"username": "x", "groups": ["system:masters"]}), True),
        (event({"username": "system:apiserver", "groups": ["system:masters"]}), False),
        (event(SOMEBODY, impersonatedUser=SEALED), True),
        (event(SOMEBODY, impersonatedUser={"username": "x", "groups": ["system:masters"]}), True),
        (event({"username": "x", "groups": ["not:ironspan:break-glass"]}), False),
        (event({"username": "x"}), False),
        ({}, False),
        ({"user": None}, False),
    ],
)
def test_what_is_a_use(given_event: dict[str, t.Any], told: bool) -> None:
    assert (audit_watch.use_of(given_event) is not None) is told


def test_a_use_says_who_did_what_from_where() -> None:
    user = {**SEALED, "extra": {"authentication.kubernetes.io/credential-id": ["X509SHA256=0123"]}}
    use = audit_watch.use_of(event(user, requestURI="/api\n<1>forged"))
    assert use is not None
    assert use.time == pytest.approx(1795341600.123456)
    assert use.text == (
        "ironspan:break-glass:01 (X509SHA256=0123) from 192.0.2.7: delete /api?<1>forged 200 allow"
    )


class Log:
    """An audit log that is written and rotated as the API server does it."""

    def __init__(self, folder: Path) -> None:
        self.file, self.state = folder / "audit" / "audit.log", folder / "state"
        self.file.parent.mkdir()
        self.state.mkdir()
        (self.state / "watch.json").write_text("{}")
        self.rotations = 0

    def write(self, *events: t.Any, end: str = "\n") -> None:
        with self.file.open("a") as file:
            file.writelines(json.dumps(item) + end for item in events)

    def rotate(self) -> None:
        self.rotations += 1
        self.file.rename(self.file.with_name(f"audit-2026-11-22T10-{self.rotations:02}-00.000.log"))
        self.file.touch()

    def watch(self) -> audit_watch.Watch:
        return audit_watch.Watch(str(self.file), str(self.state))


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def uses(watch: audit_watch.Watch) -> int:
    count = len(list(watch.one_pass()))
    watch.save()
    return count


def test_every_use_is_told_once(log: Log) -> None:
    log.write(event(), event(SOMEBODY))
    watch = log.watch()
    assert [uses(watch), uses(watch), uses(log.watch())] == [1, 0, 0]
    log.write(event())
    assert uses(log.watch()) == 1
    assert log.watch().state.uses == 2


def test_a_long_request_is_told_of_once(log: Log) -> None:
    log.write(event(stage="ResponseStarted", auditID="a"), event(auditID="a"))
    assert uses(log.watch()) == 1


def test_a_line_that_is_being_written_is_read_later(log: Log) -> None:
    text = json.dumps(event())
    log.file.write_text(text[:30])
    watch = log.watch()
    assert uses(watch) == 0
    log.file.write_text(text + "\n")
    assert uses(watch) == 1


def test_what_was_written_before_a_rotation_is_read_after_it(log: Log) -> None:
    log.write(event())
    watch = log.watch()
    assert uses(watch) == 1
    log.write(event())
    log.rotate()
    log.write(event())
    log.rotate()
    log.write(event())
    assert uses(watch) == 3
    assert uses(log.watch()) == 0


def test_when_the_file_that_was_read_is_gone_everything_is_read(log: Log) -> None:
    log.write(event(SOMEBODY))
    watch = log.watch()
    assert uses(watch) == 0
    kept = log.file.with_name("audit-2026-11-22T11-00-00.000.log")
    log.write(event())
    log.file.rename(kept)
    log.file.write_text("")
    kept.write_text(json.dumps(event()) + "\n" + json.dumps(event()) + "\n")
    kept.rename(kept.with_suffix(".old"))
    log.write(event())
    assert uses(watch) == 1


def test_a_log_that_was_emptied_is_read_from_its_beginning(log: Log) -> None:
    log.write(event(SOMEBODY), event(SOMEBODY))
    watch = log.watch()
    assert uses(watch) == 0
    os.truncate(log.file, 0)
    log.write(event())
    assert uses(watch) == 1


def test_a_rotation_between_listing_and_reading_loses_nothing(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write(event(SOMEBODY))
    watch = log.watch()
    assert uses(watch) == 0
    log.write(event())
    listed = watch._files()
    log.rotate()
    log.write(event())
    with monkeypatch.context() as patch:
        patch.setattr(watch, "_files", lambda: listed)
        assert uses(watch) == 0
    assert uses(watch) == 2


def test_a_rotation_while_files_are_listed_tells_nothing_twice_and_loses_nothing(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write(event())
    log.rotate()
    log.write(event())
    watch = log.watch()
    assert uses(watch) == 2
    log.write(event())
    listdir = os.listdir

    def rotated_just_then(folder: str) -> list[str]:
        names = listdir(folder)
        if log.rotations == 1:
            log.rotate()
            log.write(event())
        return names

    monkeypatch.setattr(os, "listdir", rotated_just_then)
    assert uses(watch) == 2
    assert uses(watch) == 0


@pytest.mark.parametrize(
    "line",
    ['{"ironspan:break-glass', '["system:masters"]', '{"user": "system:masters"}', '"ironspan:break-glass"'],
)
def test_what_is_no_event_is_counted_and_passed(log: Log, line: str) -> None:
    log.file.write_text(f"{line}\n")
    log.write(event())
    watch = log.watch()
    assert uses(watch) == 1
    assert watch.state.unreadable == 1
    assert "ironspan_audit_unreadable_lines_total 1.000" in (log.state / "ironspan-access.prom").read_text()


def test_a_line_without_end_is_passed(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_watch, "_LONGEST_LINE", 1000)
    log.file.write_text("x" * 2500 + "\n")
    log.write(event())
    assert uses(log.watch()) == 1


def test_what_was_before_the_first_start_is_no_alarm(log: Log) -> None:
    (log.state / "watch.json").unlink()
    log.write(event())
    watch = log.watch()
    assert uses(watch) == 0
    log.write(event())
    assert uses(watch) == 1
    assert uses(log.watch()) == 0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"inode": 1, "other": 2}'])
def test_a_damaged_state_begins_anew(log: Log, text: str) -> None:
    (log.state / "watch.json").write_text(text)
    log.write(event())
    assert uses(log.watch()) == 1


def test_metrics_tell_when(log: Log) -> None:
    log.write(event(), event(requestReceivedTimestamp="2026-11-22T09:00:00Z"))
    (log.state / "alive").touch()
    os.utime(log.state / "alive", (1795341000, 1795341000))
    assert uses(log.watch()) == 2
    lines = (log.state / "ironspan-access.prom").read_text().splitlines()
    values = {line.split()[0]: float(line.split()[1]) for line in lines if not line.startswith("#")}
    assert values["ironspan_break_glass_requests_total"] == 2
    assert values["ironspan_break_glass_last_use_timestamp_seconds"] == pytest.approx(1795341600.123)
    assert values["ironspan_access_controller_timestamp_seconds"] == 1795341000
    assert values["ironspan_audit_watch_timestamp_seconds"] > 0
    assert values["ironspan_audit_unreadable_lines_total"] == 0


def test_the_program_tells_and_ends(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    log.write(event())
    assert audit_watch.main([str(log.file), str(log.state), "--once"]) == 0
    assert capsys.readouterr().out.startswith(
        "<1>a credential for emergencies was used: ironspan:break-glass:01"
    )
    assert audit_watch.main(["/nowhere/audit.log", str(log.state), "--once"]) == 1


STEPS = st.lists(st.sampled_from(["use", "other", "rotate", "read", "restart"]), max_size=25)


@settings(max_examples=15)
@given(steps=STEPS)
def test_any_order_of_writing_rotating_reading_and_restarts(
    steps: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    log = Log(tmp_path_factory.mktemp("log"))
    log.file.touch()
    watch, written, told = log.watch(), 0, 0
    for step in steps:
        if step == "use":
            log.write(event())
            written += 1
        elif step == "other":
            log.write(event(SOMEBODY))
        elif step == "rotate":
            log.rotate()
        elif step == "read":
            told += uses(watch)
        else:
            watch = log.watch()
    assert told + uses(watch) == written
