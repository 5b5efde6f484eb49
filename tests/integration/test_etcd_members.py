# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What verify says of etcd, against three real members that go through what members go through."""

from __future__ import annotations

import http.client
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import etcd
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.etcd_metrics import fsync_p99
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.tls import client_context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import generate_key_file, open_store

from .loopback_cluster import Control, find_programs, running

pytestmark = pytest.mark.lab


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Control]:
    programs = find_programs()
    store = open_store(tmp_path / "pki", generate_key_file(tmp_path / "pki.key"))
    store.ensure_cas()
    with running(Control(programs, store, tmp_path, members=3)) as started:
        for name in started.members:
            started.start_etcd(name)
        started.wait(lambda: not etcd.problems(ask(started), "3.6.14"))
        yield started


def ask(control: Control) -> list[etcd.Member]:
    return etcd.ask_members(control.members, control.etcd_context())


def call(control: Control, name: str, path: str, body: object) -> None:
    connection = http.client.HTTPSConnection(
        control.members[name], control.etcd_port, timeout=10, context=control.etcd_context()
    )
    etcd._call(connection, "POST", path, body)
    connection.close()


def test_one_healthy_cluster(three: Control) -> None:
    call(three, "etcd-1", "/v3/kv/put", {"key": "YQ==", "value": "Yg=="})
    p99 = fsync_p99(three.members["etcd-1"], three.etcd_context(), three.etcd_port)
    # It has written its log: above nothing, and below the last bound of its histogram.
    assert p99 is not None and 0 < p99 <= 8.192
    three.wait(lambda: {member.revision for member in ask(three)} == {2})
    members = ask(three)
    assert etcd.problems(members, "3.6.14") == []
    assert len({member.cluster for member in members}) == 1
    assert len({member.hash for member in members}) == 1
    assert members[0].hash
    assert sum(member.member == member.leader for member in members) == 1
    assert all(member.database_bytes > 0 for member in members)


def test_dead_member_is_named_and_the_others_still_judged(three: Control) -> None:
    three.stop("etcd-2")
    found: list[str] = []

    def is_all() -> bool:
        # The others elect a leader, if it was that one.
        found[:] = etcd.problems(ask(three))
        return len(found) == 1

    three.wait(is_all)
    assert found[0].startswith(f"etcd-2 at {three.members['etcd-2']} does not answer: ")


def test_alarm(three: Control) -> None:
    member = ask(three)[2].member
    alarm = {"action": "ACTIVATE", "memberID": str(int(member, 16)), "alarm": "NOSPACE"}
    call(three, "etcd-1", "/v3/maintenance/alarm", alarm)
    found = etcd.problems(ask(three))
    assert "etcd-3 reports the alarm NOSPACE" in found


def test_member_of_another_cluster(three: Control) -> None:
    three.stop("etcd-3")
    shutil.rmtree(three.folder / "etcd-3" / "data")
    three.start_etcd("etcd-3", cluster=["etcd-3"], token="another")
    three.wait(lambda: not ask(three)[2].error and ask(three)[2].leader not in ("", "0"))
    found = "; ".join(etcd.problems(ask(three)))
    assert "the members have different cluster ids" in found
    assert "etcd-3 knows 1 members, the inventory 3" in found


def test_client_without_our_certificate_gets_nothing(three: Control, tmp_path: Path) -> None:
    other = open_store(tmp_path / "other", generate_key_file(tmp_path / "other.key"))
    other.ensure_cas()
    pair = other.client_pair("etcd-client", "intruder")
    authority = three.store.ca("etcd").certificate_pem
    context = client_context(authority, pair.certificate_pem, pair.key_pem, tmp_path / "tmp")
    assert all(member.error for member in etcd.ask_members(three.members, context))
    context = client_context(other.ca("etcd").certificate_pem, pair.certificate_pem, pair.key_pem)
    found = etcd.problems(etcd.ask_members(three.members, context))
    assert all("its certificate is not accepted" in problem for problem in found)
    assert json.dumps(found)
