# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Care of real etcd members: full ones, fragmented ones, one that is away, one whose data are corrupt."""

from __future__ import annotations

import datetime
import re
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from prometheus_client import CollectorRegistry

from ironspan.backup.care.caretaker import CareMetrics, Caretaker
from ironspan.backup.care.defragment import due
from ironspan.backup.care.health import NO_SPACE, look
from ironspan.backup.settings import Care
from ironspan.etcd import rpc_pb2 as rpc
from ironspan.etcd.client import ALL, EtcdClient
from ironspan.etcd.errors import EtcdError
from ironspan.program.errors import ProgramError
from tests.support.etcd_members import Members
from tests.unit.program.test_alerts import ETCD_OWN

MIB = 1 << 20
QUOTA = 16 * MIB
CARE = Care(defragment_fragmentation_percent=45, defragment_least_bytes=4 * MIB, quota_warn_percent=80)
ETCD_MEMBERS, ETCD_FLAGS = 3, (f"--quota-backend-bytes={QUOTA}",)


@pytest.fixture
def client(members: Members) -> Iterator[EtcdClient]:
    """A client of members that have no alarm and no keys when the next test begins."""
    with EtcdClient(members.endpoints) as made:
        yield made
        for one in made.alarms():
            made.set_alarm(one.memberID, one.alarm, active=False)
        made.delete(ALL, ALL)


def caretaker(
    client: EtcdClient, registry: CollectorRegistry | None = None, logged: int = 1 << 60
) -> Caretaker:
    return Caretaker(client, CARE, (), CareMetrics(registry or CollectorRegistry()), lambda: logged)


def fill(client: EtcdClient, count: int, size: int = 256 << 10) -> None:
    for _ in range(count):
        client.put(b"the same key", b"x" * size)


def fragment(client: EtcdClient) -> None:
    """Fill the members' files with what is free then; what is free, members find out when they commit."""
    fill(client, 40)
    client.compact(client.header().revision, physical=True)
    end = time.monotonic() + 120
    while len(due(look(client), 45, 4 * MIB)) < 3:
        assert time.monotonic() < end
        client.put(b"another", b"")
        time.sleep(0.1)


def test_a_full_cluster_takes_writes_again(client: EtcdClient) -> None:
    with pytest.raises(EtcdError, match="space"):
        fill(client, 2 * QUOTA // (256 << 10))
    assert look(client).raised(NO_SPACE)
    registry = CollectorRegistry()
    found = caretaker(client, registry).step()
    assert not found.alarms
    assert not found.problems
    client.put(b"after", b"1")
    assert registry.get_sample_value("ironspan_etcd_space_recoveries_total") == 1


def test_data_in_use_are_not_helped_by_compaction(client: EtcdClient) -> None:
    with pytest.raises(EtcdError, match="space"):
        for number in range(2 * QUOTA // (256 << 10)):
            client.put(b"%d" % number, b"x" * (256 << 10))
    with pytest.raises(ProgramError, match=r"full of data that are in use.*etcd_quota_bytes"):
        caretaker(client).step()
    assert look(client).raised(NO_SPACE)
    client.delete(b"0", b"9")
    assert not caretaker(client).step().alarms


def test_the_log_s_revisions_are_not_compacted(client: EtcdClient) -> None:
    with pytest.raises(EtcdError, match="space"):
        fill(client, 2 * QUOTA // (256 << 10))
    kept = client.header().revision - 5
    caretaker(client, logged=kept).step()
    client.range(b"the same key", revision=kept)
    with pytest.raises(EtcdError):
        client.range(b"the same key", revision=kept - 1)


def test_followers_are_defragmented_first_and_the_leader_hands_over(client: EtcdClient) -> None:
    fragment(client)
    before = look(client)
    assert before.leader is not None
    registry = CollectorRegistry()
    keeper = caretaker(client, registry)
    after = keeper.step()
    assert registry.get_sample_value("ironspan_etcd_defragmentations_total") == 3
    assert after.leader is not None
    assert after.leader.id != before.leader.id
    assert all(member.size < 4 * MIB for member in after.members)
    terms = {client.status(endpoint).raftTerm for endpoint in client.endpoints}
    assert len(terms) == 1
    keeper.step()
    assert registry.get_sample_value("ironspan_etcd_defragmentations_total") == 3, "nothing is due now"


def test_nobody_is_defragmented_while_one_is_away(client: EtcdClient, members: Members) -> None:
    fragment(client)
    members.signal("m3", signal.SIGSTOP)
    sizes = [client.status(endpoint).dbSize for endpoint in client.endpoints[:2]]
    with pytest.raises(ProgramError, match=r"not all are well.*m?3|\.3:2379"):
        caretaker(client).step()
    assert [client.status(endpoint).dbSize for endpoint in client.endpoints[:2]] == sizes
    members.signal("m3", signal.SIGCONT)
    members.wait("m3")
    assert not caretaker(client).step().problems


def test_a_corrupt_member_is_named_and_left_for_replacement(client: EtcdClient) -> None:
    member = client.status(client.endpoints[1]).header.member_id
    client.set_alarm(member, rpc.AlarmType.CORRUPT, active=True)
    registry = CollectorRegistry()
    with pytest.raises(ProgramError, match="member_replace") as refused:
        caretaker(client, registry).step()
    assert client.endpoints[1] in str(refused.value)
    labels = {"member": client.endpoints[1], "alarm": "CORRUPT"}
    assert registry.get_sample_value("ironspan_etcd_alarm", labels) == 1
    assert look(client).alarms, "nobody disarms it"


def test_another_agent_s_task_is_left_alone(client: EtcdClient) -> None:
    fragment(client)
    registry = CollectorRegistry()
    Caretaker(client, CARE, (), CareMetrics(registry), None, lambda: False).step()
    assert registry.get_sample_value("ironspan_etcd_defragmentations_total") == 0


def test_the_end_of_certificates_is_shown(client: EtcdClient, tmp_path: Path) -> None:
    path, ends = tmp_path / "server.crt", datetime.datetime(2031, 5, 6, tzinfo=datetime.UTC)
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, ends - datetime.timedelta(days=9), ends)
    ).sign(key, hashes.SHA256())
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    registry = CollectorRegistry()
    Caretaker(client, CARE, (path,), CareMetrics(registry)).step()
    shown = registry.get_sample_value(
        "ironspan_etcd_certificate_expiry_timestamp_seconds", {"file": str(path)}
    )
    assert shown == ends.timestamp()
    with pytest.raises(ProgramError, match="cannot be read"):
        Caretaker(client, CARE, (tmp_path / "none",), CareMetrics(CollectorRegistry())).step()


def test_the_alerts_ask_for_metrics_that_members_have(members: Members) -> None:
    with urllib.request.urlopen(f"{members.endpoint()}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    assert not [name for name in ETCD_OWN if not re.search(rf"^{name}[{{ ]", text, re.MULTILINE)]
