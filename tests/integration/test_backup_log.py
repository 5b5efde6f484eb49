# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The continuous log against real etcd members: what is acknowledged is in the store, whatever happens."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
import typing as t
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ironspan.backup.errors import WrongCluster
from ironspan.backup.log.group import Gap
from ironspan.backup.log.inbox import cost
from ironspan.backup.log.pipeline import Pipeline, Place
from ironspan.backup.log.spool import Spool
from ironspan.backup.log_reader import SegmentReader, read_log
from ironspan.backup.records import LeaseGrant, Record, Revision
from ironspan.backup.takeover import segments_of, take_over
from ironspan.etcd import rpc_pb2 as rpc
from ironspan.etcd.client import ALL, EtcdClient, prefix_end
from ironspan.etcd.errors import Unreachable
from ironspan.program.errors import LeaseLost
from tests.support.backup_log import NAMES, PlainKeys
from tests.support.etcd_members import CALM, Members
from tests.support.faulty_store import FaultyStore
from tests.support.log_agent import log_agent
from tests.support.memory_store import MemoryStore

Keys = dict[bytes, tuple[bytes, int, int, int, int]]
"""Value, creation and modification revision, version, lease."""
TRIED = b"/registry/try"
ETCD_MEMBERS, ETCD_FLAGS = 3, ("--max-txn-ops=1024", *CALM)


class Site:
    """A store, a spool, and pipelines between a cluster and them."""

    def __init__(self, client: EtcdClient, folder: Path, store: MemoryStore | None = None) -> None:
        header = client.header()
        self.client, self.start, self.cluster_id = client, header.revision, header.cluster_id
        self.store = FaultyStore(store or MemoryStore())
        self.folder = folder / "spool"

    def pipeline(self, **options: t.Any) -> Pipeline:
        end = take_over(self.store, NAMES, 1, "test")
        return Pipeline(
            self.client,
            options.pop("cluster_id", self.cluster_id),
            Place(self.store, PlainKeys(), NAMES, 1),
            end,
            Spool(self.folder, 64 << 20),
            after=options.pop("after", max(self.start, end.revision)),
            flush_s=0.05,
            interval_s=options.pop("interval_s", 1.0),
            **options,
        )

    def names(self) -> list[str]:
        return [item.name for item, _ in segments_of(self.store, NAMES, 1)]

    def log(self) -> list[Record]:
        take_over(self.store, NAMES, 1, "reader")
        segments = [(name, "") for name in self.names()]
        return list(read_log(self.store, PlainKeys(), segments, self.start))


@pytest.fixture
def site(client: EtcdClient, tmp_path: Path) -> Site:
    client.delete(ALL, ALL)
    return Site(client, tmp_path)


@contextlib.contextmanager
def started(pipeline: Pipeline) -> Iterator[Pipeline]:
    pipeline.start()
    try:
        yield pipeline
    finally:
        pipeline.stop()


def wait(condition: Callable[[], object], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def durable(pipeline: Pipeline, revision: int) -> None:
    wait(lambda: pipeline.position.durable_revision >= revision or pipeline.failure)
    assert pipeline.failure is None


def replayed(records: t.Iterable[Record]) -> Keys:
    keys: Keys = {}
    for record in records:
        if isinstance(record, Revision):
            for event in record.events:
                if event.put:
                    fields = (event.create_revision, record.revision, event.version, event.lease)
                    keys[event.key] = (event.value, *fields)
                else:
                    keys.pop(event.key)
    return keys


def stored_in_etcd(client: EtcdClient) -> Keys:
    return {
        kv.key: (kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease)
        for page in client.pages()
        for kv in page.kvs
    }


def put_op(key: bytes, value: bytes) -> rpc.RequestOp:
    return rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=value))


def write(client: EtcdClient, count: int, seed: int = 1) -> int:
    """Put, delete and run transactions; return the last revision."""
    choice = random.Random(seed)
    revision = 0
    for number in range(count):
        kind = choice.randrange(4)
        key = b"/registry/pods/%d" % choice.randrange(30)
        if kind == 0:
            answer: t.Any = client.delete(key)
        elif kind == 1:
            names = [b"/registry/nodes/%d" % at for at in range(choice.randrange(1, 20))]
            answer = client.txn(
                rpc.TxnRequest(success=[put_op(name, choice.randbytes(50)) for name in names])
            )
        else:
            answer = client.put(key, b"%d " % number + choice.randbytes(100))
        revision = answer.header.revision
    return revision


def takes_writes(client: EtcdClient) -> bool:
    """Tell whether a write succeeds: not while the leader is one that is frozen."""
    with contextlib.suppress(Unreachable):
        return bool(client.put(TRIED, b"").header.revision)
    return False


def test_every_key_has_its_value_revisions_version_and_lease(client: EtcdClient, site: Site) -> None:
    with started(site.pipeline()) as pipeline:
        lease = client.lease_grant(3600).ID
        client.put(b"/registry/events/a", b"leased", lease=lease)
        durable(pipeline, write(client, 150))
    log = site.log()
    assert replayed(log) == stored_in_etcd(client)
    grant = log.index(LeaseGrant(lease, 3600))
    use = next(n for n, r in enumerate(log) if isinstance(r, Revision) and r.events[0].lease == lease)
    assert grant < use
    revisions = [record.revision for record in log if isinstance(record, Revision)]
    assert revisions == list(range(site.start + 1, revisions[-1] + 1))


def test_a_member_that_is_killed_and_one_that_freezes_cost_nothing(
    client: EtcdClient, members: Members, site: Site
) -> None:
    with started(site.pipeline()) as pipeline:
        durable(pipeline, write(client, 20))
        first = next(name for name in members.names if members.endpoint(name) == pipeline.reader.endpoint)
        members.stop(first, kill=True)
        wait(lambda: pipeline.reader.connections >= 2)
        second = next(name for name in members.names if members.endpoint(name) == pipeline.reader.endpoint)
        members.start(first)
        members.wait(first)
        members.signal(second, signal.SIGSTOP)
        try:
            left = [members.endpoint(name) for name in members.names if name != second]
            with EtcdClient(left, timeout=10) as others:
                wait(lambda: pipeline.reader.stalls >= 1)
                wait(lambda: takes_writes(others))
                revision = write(others, 20, seed=2)
                durable(pipeline, revision)
                keys = stored_in_etcd(others)
        finally:
            members.signal(second, signal.SIGCONT)
            members.wait(second)
    logged = replayed(site.log())
    # A try that nobody answered may have been written after the keys were read.
    assert {**logged, TRIED: None} == {**keys, TRIED: None}


def wait_until_left(pipeline: Pipeline, endpoint: str) -> None:
    wait(lambda: pipeline.reader.endpoint != endpoint)


def leaders(client: EtcdClient) -> list[str]:
    found = {endpoint: client.status(endpoint) for endpoint in client.endpoints}
    return [endpoint for endpoint, status in found.items() if status.leader == status.header.member_id]


def test_the_leader_is_not_read_from_nor_one_that_is_elected(client: EtcdClient, site: Site) -> None:
    # A member that is slow for a moment is no stall, and still says that it does not lead.
    with started(site.pipeline(interval_s=4.0)) as pipeline:
        durable(pipeline, write(client, 20))
        for seed in (2, 3):
            (leader,), member = leaders(client), pipeline.reader.endpoint
            assert member != leader
            client.move_leader(leader, client.status(member).header.member_id)
            wait_until_left(pipeline, member)
            durable(pipeline, write(client, 20, seed))
        assert pipeline.reader.endpoint not in leaders(client)
        assert (pipeline.reader.connections, pipeline.reader.stalls, pipeline.reader.problem) == (3, 0, None)
    assert replayed(site.log()) == stored_in_etcd(client)


def test_a_member_without_a_leader_is_left_and_silence_is_no_good_news(
    client: EtcdClient, members: Members, site: Site
) -> None:
    with started(site.pipeline()) as pipeline:
        durable(pipeline, write(client, 5))
        for name in ("m2", "m3"):
            members.signal(name, signal.SIGSTOP)
        try:
            wait(lambda: "no leader" in str(pipeline.reader.problem) or pipeline.reader.stalls > 0)
            wait(lambda: pipeline.position.rpo() > 2)
        finally:
            for name in ("m2", "m3"):
                members.signal(name, signal.SIGCONT)
                members.wait(name)
        wait(lambda: takes_writes(client))
        durable(pipeline, write(client, 5, seed=2))
        wait(lambda: pipeline.position.rpo() < 2)
    assert replayed(site.log()) == stored_in_etcd(client)


def test_compacted_history_is_a_gap_that_is_told(client: EtcdClient, site: Site) -> None:
    last = write(client, 10)
    client.compact(last)
    with started(site.pipeline()) as pipeline:
        wait(lambda: pipeline.failure)
    assert isinstance(pipeline.failure, Gap)
    assert pipeline.failure.gap == (site.start + 1, last - 1)
    assert pipeline.failure.resume == last
    with started(site.pipeline(after=last)) as pipeline:
        durable(pipeline, client.put(b"a", b"1").header.revision)


def test_another_cluster_is_refused(site: Site) -> None:
    with started(site.pipeline(cluster_id=site.cluster_id ^ 1)) as pipeline:
        wait(lambda: pipeline.failure)
    assert isinstance(pipeline.failure, WrongCluster)


def test_the_second_of_two_writers_takes_over_and_the_first_ends(client: EtcdClient, site: Site) -> None:
    with started(site.pipeline()) as first:
        durable(first, write(client, 10))
        with started(site.pipeline()) as second:
            last = write(client, 10, seed=2)
            durable(second, last)
            wait(lambda: first.failure)
    assert isinstance(first.failure, LeaseLost)
    assert replayed(site.log()) == stored_in_etcd(client)


def test_a_large_delete_is_never_in_memory_whole(client: EtcdClient, tmp_path: Path) -> None:
    # Long keys, because etcd takes the square of a fragment's number of events to cut it.
    keys, prefix = 57_000, b"/registry/events/" + b"n" * 200 + b"/"
    for at in range(0, keys, 1000):
        client.txn(rpc.TxnRequest(success=[put_op(prefix + b"%06d" % n, b"v") for n in range(at, at + 1000)]))
    start = client.header().revision
    with log_agent(tmp_path, client.endpoints, start) as agent:
        revision = client.delete(prefix, prefix_end(prefix)).header.revision
        state = agent.wait(lambda state: state["durable"] >= revision)
        assert state["peak_bytes"] < 200_000_000
        agent.end()
        written = [
            record
            for item, _ in segments_of(agent.store, NAMES, 1)
            for _, found in SegmentReader(agent.store, agent.keys, item.name).frames()
            for record in found
            if isinstance(record, Revision)
        ]
        assert len(written) > 4 and all(part.more for part in written[:-1])
        assert max(cost(part) for part in written) < sum(cost(part) for part in written) / 3
        (whole,) = [record for record in agent.log() if isinstance(record, Revision)]
        assert (whole.revision, len(whole.events)) == (revision, keys)


def test_large_values_of_an_outage_stay_in_bounded_memory(client: EtcdClient, tmp_path: Path) -> None:
    client.delete(ALL, ALL)
    start = client.header().revision
    with log_agent(tmp_path, client.endpoints, start) as agent:
        agent.set_down(True)
        value = os.urandom(1_400_000)
        for number in range(30):
            last = client.put(b"large/%d" % (number % 3), value + b"%d" % number).header.revision
        agent.set_down(False)
        state = agent.wait(lambda state: state["durable"] >= last)
        assert state["peak_bytes"] < 200_000_000
        agent.end()
        assert replayed(agent.log()) == stored_in_etcd(client)


def test_a_kill_in_an_outage_loses_nothing_though_etcd_has_forgotten(
    client: EtcdClient, tmp_path: Path
) -> None:
    client.delete(ALL, ALL)
    start = client.header().revision
    with log_agent(tmp_path, client.endpoints, start) as agent:
        first = write(client, 30)
        agent.wait(lambda state: state["durable"] >= first)
        agent.set_down(True)
        spooled = write(client, 100, seed=2)
        agent.wait(lambda state: state["spooled_revision"] == spooled)
        agent.end(signal.SIGKILL)
        client.compact(spooled)
        agent.set_down(False)
        agent.start()
        last = write(client, 30, seed=3)
        agent.wait(lambda state: state["durable"] >= last)
        agent.end()
        log = list(agent.log())
        revisions = [record.revision for record in log if isinstance(record, Revision)]
        assert revisions == list(range(start + 1, last + 1))
        assert replayed(log) == stored_in_etcd(client)
