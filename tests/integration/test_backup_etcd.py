# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The etcd client against real etcd members."""

from __future__ import annotations

import contextlib
import hashlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import generate_key_file, open_store

from ironspan.etcd import rpc_pb2 as rpc
from ironspan.etcd.channel import Tls
from ironspan.etcd.client import ALL, EtcdClient, prefix_end
from ironspan.etcd.errors import Compacted, EtcdError, Unreachable
from tests.integration.loopback_cluster import Control
from tests.integration.loopback_cluster import running as started
from tests.support.etcd_members import CALM, Members

ETCD_MEMBERS = 3
ETCD_FLAGS = CALM


@pytest.fixture
def client(members: Members) -> Iterator[EtcdClient]:
    with EtcdClient(members.endpoints) as made:
        yield made
        made.delete(ALL, ALL)


def put_op(key: bytes, value: bytes = b"v") -> rpc.RequestOp:
    return rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=value))


def test_keys_pages_and_transactions(client: EtcdClient) -> None:
    answer = client.txn(rpc.TxnRequest(success=[put_op(b"a/%03d" % number) for number in range(25)]))
    assert answer.succeeded
    client.put(b"b", b"outside")
    pages = list(client.pages(b"a/", prefix_end(b"a/"), page=10))
    assert [len(page.kvs) for page in pages] == [10, 10, 5]
    assert len({kv.key for page in pages for kv in page.kvs}) == 25
    assert {kv.mod_revision for page in pages for kv in page.kvs} == {answer.header.revision}
    assert client.range(ALL, ALL, count_only=True).count == 26


def test_pages_are_of_one_revision(client: EtcdClient) -> None:
    for number in range(4):
        client.put(b"k%d" % number, b"old")
    pages = client.pages(page=2)
    next(pages)
    client.put(b"k3", b"new")
    assert [kv.value for page in pages for kv in page.kvs] == [b"old", b"old"]


def test_leases(client: EtcdClient) -> None:
    lease = client.lease_grant(100, 4711).ID
    client.put(b"leased", b"v", lease=lease)
    left = client.lease_time_to_live(lease, keys=True)
    assert (lease, left.grantedTTL, list(left.keys)) == (4711, 100, [b"leased"])
    assert lease in client.leases()
    assert client.lease_times([lease, 4712]) == {lease: 100, 4712: -1}
    client.lease_revoke(lease)
    assert client.lease_time_to_live(lease).TTL == -1
    assert client.range(b"leased").count == 0


def test_maintenance(client: EtcdClient, members: Members) -> None:
    status = {endpoint: client.status(endpoint) for endpoint in members.endpoints}
    assert {answer.version for answer in status.values()} == {"3.6.14"}
    by_id = {answer.header.member_id: endpoint for endpoint, answer in status.items()}
    assert {member.ID for member in client.members()} == set(by_id)
    leader = next(iter(status.values())).leader
    follower = next(iter(set(by_id) - {leader}))
    client.move_leader(by_id[leader], follower)
    assert client.status(by_id[follower]).leader == follower
    revision = client.put(b"a", b"1").header.revision
    members.wait_for_revision(revision)
    assert len({client.hash_kv(endpoint, revision).hash for endpoint in members.endpoints}) == 1
    client.defragment(by_id[leader])
    client.set_alarm(leader, rpc.CORRUPT, active=True)
    assert [(alarm.memberID, alarm.alarm) for alarm in client.alarms()] == [(leader, rpc.CORRUPT)]
    client.set_alarm(leader, rpc.CORRUPT, active=False)
    assert client.alarms() == []


def test_snapshot_ends_with_its_digest(client: EtcdClient, members: Members) -> None:
    client.put(b"big", bytes(200_000))
    data = b"".join(client.snapshot(members.endpoint("m2")))
    assert hashlib.sha256(data[:-32]).digest() == data[-32:]


def test_compaction_is_told_apart(client: EtcdClient, members: Members) -> None:
    first = client.put(b"a", b"1").header.revision
    last = client.put(b"a", b"2").header.revision
    client.compact(last)
    with pytest.raises(Compacted):
        client.range(b"a", revision=first)
    with pytest.raises(Compacted):
        client.compact(first)
    with pytest.raises(Compacted) as gone:
        list(client.watch(members.endpoint(), first))
    assert gone.value.compact_revision == last


def test_watch_gives_events_and_progress(client: EtcdClient, members: Members) -> None:
    start = client.put(b"a", b"1").header.revision
    client.delete(b"a")
    watch = client.watch(members.endpoint(), start)
    responses = iter(watch)
    assert next(responses).created
    events = [event for _ in range(1) for event in next(responses).events]
    assert [(event.type, event.kv.mod_revision) for event in events] == [
        (rpc.Event.PUT, start),
        (rpc.Event.DELETE, start + 1),
    ]
    watch.request_progress()
    progress = next(responses)
    assert (list(progress.events), progress.header.revision) == ([], start + 1)
    threading.Timer(0.1, watch.cancel).start()
    with pytest.raises(Unreachable):
        next(responses)


def give_leadership_to(client: EtcdClient, members: Members, name: str) -> None:
    """Else what is asked after another member's death would wait for an election, and may fail."""
    status = client.status(members.endpoint(name))
    if status.leader != status.header.member_id:
        leader = next(m for m in client.members() if status.leader == m.ID)
        client.move_leader(leader.clientURLs[0], status.header.member_id)


def test_another_member_is_asked_when_one_is_down(client: EtcdClient, members: Members) -> None:
    give_leadership_to(client, members, "m2")
    members.stop("m1", kill=True)
    try:
        revision = client.put(b"a", b"1").header.revision
        assert client.range(b"a").kvs[0].mod_revision == revision
        with pytest.raises(Unreachable):
            client.status(members.endpoint("m1"))
    finally:
        members.start("m1")
        members.wait("m1")


def test_a_frozen_member_is_unreachable_and_asked_last(client: EtcdClient, members: Members) -> None:
    lease = client.lease_grant(100).ID
    give_leadership_to(client, members, "m2")
    members.signal("m3", signal.SIGSTOP)
    frozen = members.endpoint("m3")
    try:
        with EtcdClient([frozen, members.endpoint("m2")], timeout=4) as other:
            with pytest.raises(Unreachable):
                other.put(b"a", b"1", endpoint=frozen)
            assert other.ordered() == [members.endpoint("m2"), frozen]
        with EtcdClient([frozen, members.endpoint("m2")], timeout=4) as other:
            assert other.lease_times([lease]) == {lease: 100}
            assert other.ordered() == [members.endpoint("m2"), frozen]
    finally:
        members.signal("m3", signal.SIGCONT)
        members.wait("m3")


def test_tls_with_files_that_are_replaced(tmp_path: Path, members: Members) -> None:
    store = open_store(tmp_path / "pki", generate_key_file(tmp_path / "pki.key"))
    store.ensure_cas()
    tls = Tls(tmp_path / "ca.crt", tmp_path / "client.crt", tmp_path / "client.key")
    tls.ca.write_text(store.ca("etcd").certificate_pem)

    def issue(name: str) -> None:
        pair = store.client_pair("etcd-client", name)
        tls.certificate.write_text(pair.certificate_pem)
        tls.key.write_text(pair.key_pem)

    with started(Control({"etcd": members.program}, store, tmp_path)) as control:
        control.start_etcd("etcd-1")
        endpoint = f"https://{control.address}:{control.etcd_port}"
        tls.certificate.write_text(store.ca("etcd").certificate_pem)
        tls.key.write_text(store.ca("kubernetes").key_pem())
        with EtcdClient([endpoint], tls, timeout=10) as client:
            with pytest.raises(EtcdError):
                client.status(endpoint)
            issue("first")

            def answers() -> bool:
                with contextlib.suppress(EtcdError):
                    return bool(client.status(endpoint).version)
                return False

            control.wait(answers)
            client.put(b"a", b"1")
            issue("second")
            client.put(b"a", b"2")
            assert client.range(b"a").kvs[0].value == b"2"


@pytest.mark.parametrize("endpoint", ["10.0.0.1:2379", "ftp://10.0.0.1", "https://"])
def test_an_endpoint_that_is_none_is_refused(endpoint: str) -> None:
    with pytest.raises(EtcdError, match="no etcd endpoint"):
        EtcdClient([endpoint]).put(b"a", b"1")


def test_tls_files_that_are_missing_are_named(tmp_path: Path) -> None:
    tls = Tls(tmp_path / "ca.crt", tmp_path / "server.crt", tmp_path / "server.key")
    with pytest.raises(EtcdError, match=r"ca\.crt"):
        EtcdClient(["https://127.0.0.1:2379"], tls).put(b"a", b"1")
