# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The backup agent as a process, with real etcd members and a store in a folder."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ironspan.backup.errors import ChainError
from ironspan.backup.manifest import Epoch, dump
from ironspan.etcd import rpc_pb2 as rpc
from ironspan.etcd.client import EtcdClient, prefix_end
from tests.support.agent_process import AgentSite, Writer, insist_on_a_whole_log, quick, site, wait
from tests.support.etcd_members import Members, running
from tests.support.tcp_proxy import TcpProxy


@pytest.fixture
def agents(members: Members, tmp_path: Path) -> Iterator[AgentSite]:
    with site(tmp_path / "site", members.endpoints, program=quick(20)) as made:
        yield made


def test_a_killed_agent_is_followed_by_another_without_a_missing_revision(
    agents: AgentSite, client: EtcdClient
) -> None:
    with Writer(client) as writer:
        for host in ("a", "b"):
            agents.start(host)
        wait(lambda: agents.metric("a", "active") + agents.metric("b", "active") == 1, "one is active")
        first, second = ("a", "b") if agents.metric("a", "active") else ("b", "a")
        wait(lambda: agents.metric(first, "log_revision") > 0, "it writes")
        wait(lambda: agents.found().snapshots, "a snapshot")
        assert agents.metric(second, "active") == 0
        agents.kill(first)
        killed_at = writer.revision
        wait(lambda: agents.metric(second, "log_revision") > killed_at, "the other one goes on")
        agents.start(first)
    last = writer.revision
    wait(lambda: agents.metric(second, "log_revision") >= last, "all that was acknowledged is stored")
    assert agents.metric(first, "active") == 0
    insist_on_a_whole_log(agents, client, last, oldest=True)
    assert len(agents.found().segments) == 2
    # A successor of an agent that ends properly need not wait for the lease's end.
    assert agents.stop(second) == 0
    wait(lambda: agents.metric(first, "active"), "the first one is active again")


def test_revisions_that_etcd_forgot_are_a_named_gap_and_a_new_snapshot(
    agents: AgentSite, client: EtcdClient
) -> None:
    client.put(b"/registry/pods/a", b"1")
    agents.start("a")
    wait(lambda: agents.found().snapshots, "a snapshot")
    before = client.put(b"/registry/pods/a", b"2").header.revision
    wait(lambda: agents.metric("a", "log_revision") >= before, "the log")
    assert agents.stop("a") == 0
    for number in range(9):
        lost = client.put(b"/registry/pods/a", b"lost %d" % number).header.revision
    client.compact(lost)
    agents.start("a")
    wait(lambda: len(agents.found().snapshots) == 2, "a snapshot behind the gap")
    assert agents.metric("a", "gaps_total") == 1
    last = client.put(b"/registry/pods/a", b"3").header.revision
    wait(lambda: agents.metric("a", "log_revision") >= last, "the log goes on")
    base, records = agents.logged()
    assert (base, [record.revision for record in records]) == (lost, [last])
    assert agents.logged(point=f"revision:{before}")[1][-1].revision == before
    with pytest.raises(ChainError) as caught:
        agents.logged(point=f"revision:{lost - 1}")
    assert caught.value.gap is not None
    assert caught.value.gap[0] == before + 1


def test_a_deleted_prefix_is_logged_in_bounded_memory(agents: AgentSite, client: EtcdClient) -> None:
    agents.start("a")
    wait(lambda: agents.found().snapshots, "a snapshot")
    prefix, value = b"/registry/events/", b"x" * 1000
    for start in range(0, 20_000, 100):
        request = rpc.TxnRequest(
            success=[
                rpc.RequestOp(request_put=rpc.PutRequest(key=prefix + b"%06d" % number, value=value))
                for number in range(start, start + 100)
            ]
        )
        client.txn(request)
    last = client.delete(prefix, prefix_end(prefix)).header.revision
    wait(lambda: agents.metric("a", "log_revision") >= last, "the burst is stored")
    _, records = agents.logged()
    assert len(records[-1].events) == 20_000
    assert not any(event.put for event in records[-1].events)
    peak = int(Path(f"/proc/{agents.processes['a'].pid}/status").read_text().split("VmHWM:")[1].split()[0])
    assert peak < 200 * 1024, f"{peak} KiB"


def test_an_agent_killed_within_a_snapshot_leaves_none(members: Members, agents: AgentSite) -> None:
    address = members.endpoint().removeprefix("http://").split(":")
    with EtcdClient(members.endpoints) as client:
        for number in range(40):
            client.put(b"/registry/secrets/%d" % number, os.urandom(100_000))
    with TcpProxy(address[0], int(address[1]), 2 << 20, "hold") as proxy:
        agents.settings["etcd"]["endpoints"] = [proxy.url]
        process = subprocess.Popen(agents.command("a", "snapshot"), stderr=subprocess.DEVNULL)
        assert proxy.reached.wait(120)
        time.sleep(0.3)
        assert process.poll() is None
        process.kill()
        process.wait()
    assert not agents.found().snapshots
    assert not agents.found().unfinished
    agents.settings["etcd"]["endpoints"] = members.endpoints
    done = agents.run("snapshot", "--json")
    assert done.returncode == 0, done.stderr
    assert [one.id for one in agents.found().snapshots] == [json.loads(done.stdout)["id"]]


def test_a_stream_that_breaks_is_taken_from_another_member(members: Members, agents: AgentSite) -> None:
    address = members.endpoint().removeprefix("http://").split(":")
    with EtcdClient(members.endpoints) as client:
        for number in range(40):
            client.put(b"/registry/secrets/%d" % number, os.urandom(100_000))
    with TcpProxy(address[0], int(address[1]), 2 << 20, "cut") as proxy:
        agents.settings["etcd"]["endpoints"] = [proxy.url, *members.endpoints]
        done = agents.run("snapshot", "--json")
        assert proxy.reached.is_set()
    assert done.returncode == 0, done.stderr
    assert f"No snapshot from {proxy.url}" in done.stderr
    assert [one.id for one in agents.found().snapshots] == [json.loads(done.stdout)["id"]]
    shown = agents.run("list")
    assert json.loads(done.stdout)["id"] in shown.stdout


def test_a_store_of_another_cluster_is_refused(agents: AgentSite, client: EtcdClient) -> None:
    name = agents.names.epoch(1)
    agents.store().put(name, [dump(Epoch(1, "abc", 1), name, agents.names.proof)])
    done = agents.run("snapshot", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["kind"] == "WrongCluster"
    agents.start("a")
    wait(lambda: agents.metric("a", 'errors_total{kind="cluster"}'), "it is counted")
    names = {item.name for item in agents.store().list("")}
    assert names == {agents.names.epoch(1), agents.names.writer}


def test_a_database_older_than_its_backup_is_refused(members: Members, tmp_path: Path) -> None:
    with running(members.program, tmp_path / "etcd") as own, EtcdClient(own.endpoints) as client:
        client.put(b"/registry/pods/a", b"0")
        own.stop("m1")
        shutil.copytree(own.folder / "m1", tmp_path / "older")
        own.start("m1")
        own.wait("m1")
        with site(tmp_path / "site", own.endpoints) as agents:
            agents.start("a")
            wait(lambda: agents.found().snapshots, "a snapshot")
            last = [client.put(b"/registry/pods/a", b"%d" % n).header.revision for n in range(9)][-1]
            wait(lambda: agents.metric("a", "log_revision") >= last, "the log")
            agents.stop("a")
            own.stop("m1")
            shutil.rmtree(own.folder / "m1")
            shutil.copytree(tmp_path / "older", own.folder / "m1")
            own.start("m1")
            own.wait("m1")
            before = {item.name for item in agents.store().list("")}
            agents.start("a")
            wait(lambda: agents.metric("a", 'errors_total{kind="cluster"}'), "it is counted")
            assert "this database is older than its backup" in agents.said("a")
            assert {item.name for item in agents.store().list("")} == before


@pytest.mark.long
def test_a_writer_that_slept_through_its_lease_writes_no_more(agents: AgentSite, client: EtcdClient) -> None:
    with Writer(client) as writer:
        agents.start("a")
        wait(lambda: agents.metric("a", "log_revision") > 0, "it writes")
        agents.start("b")
        agents.processes["a"].send_signal(signal.SIGSTOP)
        asleep = writer.revision
        wait(lambda: agents.metric("b", "log_revision") > asleep, "the other one goes on")
        agents.processes["a"].send_signal(signal.SIGCONT)
        wait(lambda: agents.metric("a", 'errors_total{kind="lease"}'), "it finds out")
        wait(lambda: agents.metric("a", "active") == 0, "it stands by")
    last = writer.revision
    wait(lambda: agents.metric("b", "log_revision") >= last, "the log")
    insist_on_a_whole_log(agents, client, last, oldest=True)


def test_a_second_store_has_the_same(members: Members, client: EtcdClient, tmp_path: Path) -> None:
    stores = [{"kind": "file", "path": str(tmp_path / name)} for name in ("one", "two")]
    with site(tmp_path / "site", members.endpoints, stores=stores, program=quick(20)) as agents:
        agents.start("a")
        wait(lambda: agents.found().snapshots, "a snapshot")
        last = client.put(b"/registry/pods/a", b"1").header.revision
        wait(lambda: agents.metric("a", "log_revision") >= last, "the log")
        lag = 'copy_lag_seconds{store="1",what="log"}'
        wait(lambda: agents.found(1).snapshots and agents.logged(1)[1], "the copy")
        wait(lambda: agents.logged(1)[1][-1].revision >= last, "the copy of the log")
        wait(lambda: agents.metrics("a").get(lag, 1e9) < 10, "the lag")
        assert [one.id for one in agents.found(1).snapshots] == [one.id for one in agents.found().snapshots]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_agents_that_end_in_every_way_lose_nothing(agents: AgentSite, client: EtcdClient, seed: int) -> None:
    """Kills, proper ends and pauses of two agents in random order, with snapshots by hand between them."""
    chance = random.Random(seed)
    first = client.header().revision
    with Writer(client) as writer:
        for host in ("a", "b"):
            agents.start(host)
        wait(lambda: agents.found().snapshots, "a snapshot")
        for _ in range(6):
            host = chance.choice("ab")
            match chance.choice(["kill", "end", "pause", "snapshot", "purge"]):
                case "kill":
                    agents.kill(host)
                    agents.start(host)
                case "end":
                    agents.stop(host)
                    agents.start(host)
                case "pause":
                    agents.processes[host].send_signal(signal.SIGSTOP)
                    time.sleep(chance.uniform(0, 20))
                    agents.processes[host].send_signal(signal.SIGCONT)
                case "snapshot":
                    assert agents.run("snapshot").returncode == 0
                case "purge":
                    client.delete(b"/registry/pods/", b"/registry/pods0")
            time.sleep(chance.uniform(0, 6))
    last = writer.revision
    wait(lambda: max(agents.metric(host, "log_revision") for host in "ab") >= last, "the log")
    assert sum(agents.metric(host, "active") for host in "ab") == 1
    assert agents.metric("a", "gaps_total") + agents.metric("b", "gaps_total") == 0
    for snapshot in agents.found().snapshots:
        assert snapshot.revision >= first
        base, records = agents.logged(point=f"revision:{snapshot.revision}")
        assert (base, records) == (snapshot.revision, [])
    insist_on_a_whole_log(agents, client, last, oldest=True)
