# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The agent's process around its sessions: what an operator has to fix ends nothing and is tried again."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import signal
import threading
import typing as t
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from ironspan.backup.agent import run
from ironspan.backup.agent.metrics import Metrics
from ironspan.backup.agent.watched import Watched
from ironspan.backup.errors import WrongCluster
from ironspan.backup.log.pipeline import Pipeline
from ironspan.backup.log.position import Position
from ironspan.backup.settings import Settings, parse
from ironspan.program import leader
from ironspan.program.errors import ProgramError, Refused, RoleMissing, ServiceError
from ironspan.program.leader import Leadership
from tests.support.faulty_store import Fault, FaultyStore
from tests.support.memory_store import MemoryStore
from tests.unit.backup.test_settings import UNSIGNING

PUBLIC = "NAME resolves to a public address."


@pytest.fixture
def settings() -> Settings:
    good = parse(UNSIGNING)
    return dataclasses.replace(good, metrics=dataclasses.replace(good.metrics, address="127.0.0.1", port=0))


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def count(registry: CollectorRegistry, kind: str) -> float | None:
    return registry.get_sample_value("ironspan_etcd_backup_errors_total", {"kind": kind})


class Sessions:
    """In the place of sessions: each ends with the next of some errors, and the last one ends the agent."""

    def __init__(self, *errors: ProgramError) -> None:
        self.errors = list(errors)
        self.metrics: Metrics | None = None
        self.waits: list[float] = []

    def __call__(self, *given: object) -> Sessions:
        self.metrics = t.cast("Metrics", given[-1])
        return self

    def run(self, stop: threading.Event) -> None:
        if self.errors:
            raise self.errors.pop(0)
        stop.set()


def arranged(monkeypatch: pytest.MonkeyPatch, store: FaultyStore, sessions: Sessions, refusals: int) -> None:
    """Let the agent run on a store that cannot be opened a few times, with other sessions."""
    left = [Refused(PUBLIC, "Fix the DNS.")] * refusals

    def open_store(entry: object) -> FaultyStore:
        if left:
            raise left.pop()
        return store

    release = Leadership.release

    def released(self: Leadership, seconds: float = 0.0) -> None:
        sessions.waits.append(seconds)
        release(self)

    monkeypatch.setattr(run, "open_store", open_store)
    monkeypatch.setattr(run, "open_keys", lambda entry: None)
    monkeypatch.setattr(run, "client_of", lambda settings: contextlib.nullcontext())
    monkeypatch.setattr(run, "guarding", lambda *given: contextlib.nullcontext(), raising=False)
    monkeypatch.setattr(run, "Session", sessions)
    monkeypatch.setattr(run, "REFUSED_SECONDS", 0.001)
    monkeypatch.setattr(run, "_STEP_SECONDS", 0.001)
    monkeypatch.setattr(leader, "REFUSED_SECONDS", 0.001)
    monkeypatch.setattr(leader, "RENEW_SECONDS", 0.01)
    monkeypatch.setattr(Leadership, "release", released)


def test_a_store_that_refuses_is_tried_until_it_is_fixed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left = 4

    def role_that_takes_minutes(what: str, name: str) -> Fault | None:
        nonlocal left
        if what != "acquire" or not left:
            return None
        left -= 1
        return "forbidden"

    sessions = Sessions()
    arranged(monkeypatch, FaultyStore(MemoryStore(), role_that_takes_minutes), sessions, refusals=3)
    with caplog.at_level(logging.WARNING):
        assert run.run(settings) == 0
    assert sessions.metrics is not None
    assert count(sessions.metrics.registry, "refused") == 3 + 4
    said = [record.getMessage() for record in caplog.records]
    assert said.count(f"{PUBLIC} Fix the DNS.") == 3
    # The lease is asked for more often than anybody wants to read about.
    assert len([line for line in said if "no role" in line]) == 1


def test_who_is_told_to_end_while_the_store_cannot_be_opened_ends(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    arranged(monkeypatch, FaultyStore(MemoryStore()), Sessions(), refusals=0)
    monkeypatch.setattr(run, "REFUSED_SECONDS", 600.0)
    timer = threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGTERM])

    def open_store(entry: object) -> t.NoReturn:
        # Not before: who does not listen to the signal yet is ended by it.
        timer.start()
        raise Refused(PUBLIC, "Fix the DNS.")

    monkeypatch.setattr(run, "open_store", open_store)
    assert run.run(settings) == 0
    timer.join()


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (RoleMissing("may not append"), 0.001),
        (ServiceError("down", retryable=True), run.STAND_BACK_SECONDS),
        (WrongCluster("another one"), run.STAND_BACK_SECONDS),
    ],
)
def test_a_session_that_fails_leaves_the_lease_to_others_for_a_while(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, error: ProgramError, seconds: float
) -> None:
    sessions = Sessions(error)
    arranged(monkeypatch, FaultyStore(MemoryStore()), sessions, refusals=0)
    assert run.run(settings) == 0
    assert sessions.waits[0] == seconds


def test_a_problem_that_goes_on_is_counted_each_time_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    class Part:
        problem: ProgramError | None = None
        written_bytes = stalls = spooled_bytes = 0

    class Parts:
        position = Position(0)
        sender, reader, outbox = Part(), Part(), Part()

    metrics = Metrics()
    watched = Watched(t.cast("Pipeline", Parts()), metrics)
    problems = [
        RoleMissing("may not"),
        RoleMissing("may not"),
        ServiceError("down"),
        None,
        ServiceError("down"),
    ]
    for problem in problems:
        Parts.sender.problem = problem
        watched.step()
        watched.step()
    assert [record.getMessage() for record in caplog.records] == ["may not", "down", "down"]
    assert (count(metrics.registry, "refused"), count(metrics.registry, "store")) == (2, 2)
