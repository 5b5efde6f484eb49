# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The log is read from a member that does not lead, and from any before it is not read."""

from __future__ import annotations

import typing as t

import pytest

from ironspan.backup.log.choice import Choice
from ironspan.etcd import rpc_pb2 as rpc
from ironspan.etcd.errors import Unreachable

LEADS, FOLLOWS, ALONE, SILENT = "leads", "follows", "knows no leader", "is silent"


class FakeEtcd:
    """Members by endpoint, each with what it is."""

    def __init__(self, **members: str) -> None:
        self.members = members
        self.asked: list[str] = []

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(self.members)

    def status(self, endpoint: str, timeout: float) -> rpc.StatusResponse:
        assert timeout == 1.5
        self.asked.append(endpoint)
        if self.members[endpoint] == SILENT:
            raise Unreachable("silent.")
        leader = {LEADS: 1, FOLLOWS: 2, ALONE: 0}[self.members[endpoint]]
        return rpc.StatusResponse(header=rpc.ResponseHeader(member_id=1), leader=leader)


def choice(etcd: FakeEtcd) -> Choice:
    return Choice(t.cast("t.Any", etcd), 1.5)


@pytest.mark.parametrize(
    ("members", "chosen", "asked"),
    [
        ((LEADS,), "a", ""),
        ((SILENT,), "a", ""),
        ((FOLLOWS, LEADS, FOLLOWS), "a", "a"),
        ((LEADS, FOLLOWS, FOLLOWS), "b", "ab"),
        ((SILENT, LEADS, FOLLOWS), "c", "abc"),
        ((SILENT, SILENT, LEADS), "c", "abc"),
        ((ALONE, FOLLOWS), "b", "ab"),
        ((ALONE, LEADS), "b", "ab"),
        ((ALONE, SILENT), "a", "ab"),
        ((SILENT, SILENT), "a", "ab"),
    ],
)
def test_one_that_does_not_lead_then_the_leader_then_any(
    members: tuple[str, ...], chosen: str, asked: str
) -> None:
    etcd = FakeEtcd(**dict(zip("abc", members, strict=False)))
    assert (choice(etcd).next(), "".join(etcd.asked)) == (chosen, asked)


def test_every_member_gets_its_turn_while_nothing_is_read() -> None:
    etcd = FakeEtcd(a=LEADS, b=FOLLOWS, c=FOLLOWS)
    made, turns = choice(etcd), ""
    for _ in range(7):
        turns += (chosen := made.next())
        made.failed(chosen, delivered=False)
    assert turns == "bcabcab"


def test_what_failed_long_ago_is_forgotten_when_something_was_read() -> None:
    etcd = FakeEtcd(a=LEADS, b=FOLLOWS, c=FOLLOWS)
    made = choice(etcd)
    made.failed("b", delivered=False)
    made.failed("c", delivered=True)
    assert made.next() == "b"
    made.failed("b", delivered=True)
    assert made.next() == "c"


@pytest.mark.parametrize(
    ("member", "leads"), [(LEADS, True), (FOLLOWS, False), (ALONE, None), (SILENT, None)]
)
def test_a_member_says_whether_it_leads(member: str, leads: bool | None) -> None:
    assert choice(FakeEtcd(a=member)).leads("a") is leads
