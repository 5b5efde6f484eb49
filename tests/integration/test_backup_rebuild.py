# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Rebuilding a database from a snapshot and the log, with a real etcd as judge of what it has to be."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from ironspan.backup.etcd.client import EtcdClient
from ironspan.backup.rebuild.programs import Programs
from ironspan.backup.rebuild.replay import Replayed, last_revision, replay, seal
from ironspan.backup.rebuild.scratch import Scratch
from ironspan.backup.records import Record
from tests.support import etcd_history as history
from tests.support.etcd_members import find_etcd, running

LEASES = itertools.count(1000, 10)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    found = find_etcd(tmp_path_factory.mktemp("bin"), ["etcd", "etcdutl"])
    return Programs(found["etcd"], found["etcdutl"])


@pytest.fixture(scope="module")
def source(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdClient]:
    flags = ["--max-txn-ops=100000", "--max-request-bytes=50000000"]
    with (
        running(programs.etcd, tmp_path_factory.mktemp("source"), 1, flags) as members,
        EtcdClient(members.endpoints, timeout=60) as client,
    ):
        yield client


def revision_of(client: EtcdClient) -> int:
    return client.range(b"x").header.revision


def rebuilt(path: Path, records: Sequence[Record], until: int) -> Replayed:
    path.write_bytes(path.with_name("snapshot.db").read_bytes())
    done = replay(path, records, lambda revision, time_ms: revision > until)
    seal(path)
    assert last_revision(path) == done.revision
    return done


@settings(
    max_examples=12, deadline=None, phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(before=history.histories, after=history.histories)
def test_every_key_comes_back_as_it_was(
    source: EtcdClient,
    programs: Programs,
    tmp_path: Path,
    before: list[history.Step],
    after: list[history.Step],
) -> None:
    grants: list[Record] = list(history.apply(source, before, next(LEASES)))
    history.save_snapshot(source, tmp_path / "snapshot.db")
    first = revision_of(source)
    grants += history.apply(source, after, next(LEASES))
    last = revision_of(source)
    path = tmp_path / "rebuilt.db"
    done = rebuilt(path, [*grants, *history.watched(source, first + 1, last)], last)
    assert (done.revision, done.revisions) == (last, last - first)
    with Scratch(tmp_path / "scratch", programs) as scratch:
        scratch.restore(path)
        client = scratch.start()
        endpoint = scratch.endpoint
        assert client.status(endpoint).header.revision == last
        assert history.contents(client, last) == history.contents(source, last)
        for revision in {first, (first + last) // 2, last}:
            assert (
                client.hash_kv(endpoint, revision).hash == source.hash_kv(source.endpoints[0], revision).hash
            )
        assert client.leases() >= source.leases()
