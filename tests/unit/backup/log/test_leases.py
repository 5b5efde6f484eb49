# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The log knows every lease before it is used, and its end only when its keys are gone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ironspan.backup.log.leases import GONE_TTL_S, SWEEP_S, UNKNOWN_TTL_S, LeaseBook
from ironspan.backup.records import Event, LeaseGone, LeaseGrant, Progress, Record, Revision
from ironspan.etcd.errors import Unreachable


class Etcd:
    def __init__(self) -> None:
        self.now = 0.0
        self.times = {1: 100, 2: 200, 3: 300}
        self.alive = {1, 2, 3}
        self.revision = 1000
        self.down = False
        self.asked: list[int] = []

    def clock(self) -> float:
        return self.now

    def lease_times(self, leases: Sequence[int], timeout: float) -> dict[int, int]:
        if self.down:
            raise Unreachable("no member answers.")
        self.asked += leases
        return {lease: self.times.get(lease, -1) for lease in leases}

    def lease_ids(self, timeout: float) -> tuple[int, set[int]]:
        if self.down:
            raise Unreachable("no member answers.")
        return self.revision, self.alive


@pytest.fixture
def etcd() -> Etcd:
    return Etcd()


@pytest.fixture
def book(etcd: Etcd) -> LeaseBook:
    return LeaseBook(etcd, etcd.clock)


def used(revision: int, *leases: int, more: bool = False) -> Revision:
    return Revision(
        revision, 1, tuple(Event(True, b"%d" % lease, b"", 1, 1, lease) for lease in leases), more=more
    )


def sweep(book: LeaseBook, etcd: Etcd) -> None:
    etcd.now += SWEEP_S
    book.sweep()


def test_a_lease_is_told_once_before_its_first_use(book: LeaseBook, etcd: Etcd) -> None:
    records: list[Record] = [used(10, 0), used(11, 2, 1), Progress(11, 1), used(12, 1), used(13, 3)]
    assert book.complete(records) == [
        records[0],
        LeaseGrant(2, 200),
        LeaseGrant(1, 100),
        *records[1:4],
        LeaseGrant(3, 300),
        records[4],
    ]
    assert book.complete([used(14, 1, 2, 3)]) == [used(14, 1, 2, 3)]
    assert etcd.asked == [1, 2, 3]


@pytest.mark.parametrize(
    ("down", "ttl"), [(True, UNKNOWN_TTL_S), (False, GONE_TTL_S)], ids=["no answer", "gone already"]
)
def test_a_lease_whose_time_is_not_known_gets_one(book: LeaseBook, etcd: Etcd, down: bool, ttl: int) -> None:
    etcd.down = down
    assert book.complete([used(10, 9)])[0] == LeaseGrant(9, ttl)


def test_its_end_is_told_behind_the_deletion_of_its_keys(book: LeaseBook, etcd: Etcd) -> None:
    book.complete([used(10, 1, 2)])
    etcd.alive = {2}
    sweep(book, etcd)
    etcd.revision = 50
    assert book.complete([used(49)]) == [used(49)]
    sweep(book, etcd)
    assert book.complete([used(49)]) == [used(49)]
    assert book.complete([used(50, more=True)]) == [used(50, more=True)]
    assert book.complete([used(50), used(51)]) == [used(50), LeaseGone(1), used(51)]
    assert book.known == 1


def test_one_listing_alone_ends_no_lease(book: LeaseBook, etcd: Etcd) -> None:
    book.complete([used(10, 1, 2)])
    for alive in ({2}, {1, 2}, {2}, {1, 2}):
        etcd.alive = alive
        sweep(book, etcd)
    assert book.complete([used(2000)]) == [used(2000)]


def test_sweeps_are_rare_and_survive_an_etcd_that_is_down(book: LeaseBook, etcd: Etcd) -> None:
    book.complete([used(10, 1)])
    etcd.alive = set()
    book.sweep()
    etcd.down = True
    sweep(book, etcd)
    etcd.down = False
    sweep(book, etcd)
    sweep(book, etcd)
    assert book.complete([used(1000)]) == [used(1000), LeaseGone(1)]
