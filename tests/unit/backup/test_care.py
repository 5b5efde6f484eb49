# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is worth defragmenting, and who counts as healthy."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from ironspan.backup.care.caretaker import CareMetrics, Caretaker
from ironspan.backup.care.commands import as_data, as_text
from ironspan.backup.care.defragment import due
from ironspan.backup.care.health import BEHIND, Health, Member, judged
from ironspan.backup.settings import Care
from ironspan.etcd import rpc_pb2 as rpc
from ironspan.etcd.client import EtcdClient

MIB = 1 << 20


def member(number: int, **more: t.Any) -> Member:
    usual: dict[str, t.Any] = {"leader": 1, "size": 200 * MIB, "in_use": 190 * MIB, "quota": 400 * MIB}
    return dataclasses.replace(
        Member(f"https://10.0.0.{number}:2379", number, applied=5_000), **{**usual, **more}
    )


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, ""),
        ({"leader": 0}, "it has no leader"),
        ({"leader": 2}, "the members follow different leaders"),
        ({"learner": True}, "it is a learner still"),
        ({"applied": 5_000 - BEHIND}, ""),
        ({"applied": 5_000 - BEHIND - 1}, f"it is {BEHIND + 1} log entries behind"),
        ({"problem": "no answer", "id": 0}, "no answer"),
    ],
)
def test_who_is_healthy(changes: dict[str, object], problem: str) -> None:
    members = judged([member(1), member(2), member(3, **changes)])
    assert members[2].problem == problem
    assert bool(Health(members).problems) is bool(problem)


def test_followers_come_first_and_only_what_is_worth_it() -> None:
    members = (
        member(1, in_use=50 * MIB),
        member(2, in_use=50 * MIB),
        member(3),
        member(4, size=60 * MIB, in_use=10 * MIB),
    )
    assert [found.id for found in due(Health(members), 45, 100 * MIB)] == [2, 1]
    assert [found.id for found in due(Health(members), 45, 0)] == [2, 4, 1]
    assert due(Health(members), 90, 0) == []


@given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), max_size=5), st.integers(1, 99))
def test_an_empty_or_full_file_is_never_due(sizes: list[tuple[int, int]], percent: int) -> None:
    members = tuple(
        member(number, size=max(size, used), in_use=used) for number, (size, used) in enumerate(sizes, 1)
    )
    for found in due(Health(members), percent, 1):
        assert found.size - found.in_use >= 1
        assert found.fragmentation >= percent


def test_what_people_and_programs_see() -> None:
    health = Health((member(1), member(2, problem="no answer")), ((2, "CORRUPT"), (9, "NOSPACE")))
    assert as_text(health).splitlines() == [
        "https://10.0.0.1:2379: leads, -, 200 MiB, 5 % free, 50 % of its quota",
        "https://10.0.0.2:2379: no answer, -, 200 MiB, 5 % free, 50 % of its quota",
        "alarm CORRUPT: https://10.0.0.2:2379",
        "alarm NOSPACE: 9",
    ]
    assert [entry["leader"] for entry in as_data(health)["members"]] == [True, False]


def test_what_prometheus_sees() -> None:
    registry = CollectorRegistry()
    metrics = CareMetrics(registry)
    metrics.show(Health((member(1), member(2, problem="x")), ((2, "CORRUPT"),)))
    text = generate_latest(registry).decode()
    assert 'ironspan_etcd_member_healthy{member="https://10.0.0.2:2379"} 0.0' in text
    assert 'ironspan_etcd_alarm{alarm="CORRUPT",member="https://10.0.0.2:2379"} 1.0' in text
    assert 'ironspan_etcd_alarm{alarm="CORRUPT",member="https://10.0.0.1:2379"} 0.0' in text
    metrics.forget()
    assert "https://10.0.0.1" not in generate_latest(registry).decode()


class FragmentedEtcd:
    """Two members whose files are half free until they are defragmented; counts the calls."""

    endpoints = ("a", "b")

    def __init__(self, in_use: int) -> None:
        self.in_use = in_use
        self.calls: list[str] = []

    def status(self, endpoint: str, timeout: float | None = None) -> rpc.StatusResponse:
        self.calls.append("status")
        header = rpc.ResponseHeader(member_id=self.endpoints.index(endpoint) + 1)
        return rpc.StatusResponse(
            header=header, leader=1, dbSize=200 * MIB, dbSizeInUse=self.in_use, dbSizeQuota=400 * MIB
        )

    def alarms(self, *, endpoint: str | None = None) -> list[rpc.AlarmMember]:
        self.calls.append("alarms")
        return []

    def move_leader(self, endpoint: str, target: int) -> None:
        self.calls.append("move_leader")

    def defragment(self, endpoint: str, timeout: float) -> None:
        self.calls.append("defragment")
        if self.calls.count("defragment") == len(self.endpoints):
            self.in_use = 200 * MIB


def test_members_are_asked_once_when_nothing_is_due_and_again_after_something_was_done() -> None:
    once = ["status", "status", "alarms"]
    quiet = FragmentedEtcd(190 * MIB)
    registry, care = CollectorRegistry(), Care(45, 4 * MIB, 80)
    metrics = CareMetrics(registry)

    def step(etcd: FragmentedEtcd) -> Health:
        return Caretaker(t.cast("EtcdClient", etcd), care, (), metrics).step()

    step(quiet)
    assert quiet.calls == once
    busy = FragmentedEtcd(20 * MIB)
    health = step(busy)
    assert busy.calls.count("defragment") == 2
    assert busy.calls[-3:] == once
    assert {member.fragmentation for member in health.members} == {0}
    shown = registry.get_sample_value("ironspan_etcd_fragmentation_percent", {"member": "a"})
    assert shown == 0, "what is shown is from after the work"
