# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The backup agent while clocks jump, disks fill up and members are killed; real etcd throughout."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ironspan.backup.agent.snapshotter import Checked
from ironspan.backup.care.health import look
from ironspan.backup.retention import key, plan
from ironspan.backup.settings import Retention
from ironspan.etcd.client import EtcdClient
from ironspan.etcd.errors import EtcdError
from tests.integration.test_full_disk import fill
from tests.support.agent_process import ROOT, AgentSite, Writer, insist_on_a_whole_log, quick, site, wait
from tests.support.etcd_members import CALM, Members, running
from tests.support.partitions import needed
from tests.support.tcp_proxy import TcpProxy

ETCD_MEMBERS = 3
ETCD_FLAGS = CALM
HOUR = 3600


@pytest.fixture
def agents(members: Members, tmp_path: Path) -> Iterator[AgentSite]:
    with site(tmp_path / "site", members.endpoints, program=quick(20)) as made:
        yield made


# -- clocks ----------------------------------------------------------------------------------------


class Clock:
    """The clock of the hosts whose agents are started from now on."""

    def __init__(self, agents: AgentSite, name: str) -> None:
        self._file = agents.folder / f"{name}.clock"
        self.ahead(0)
        path = f"{ROOT / 'tests/support/shifted_clock'}:{ROOT}"
        agents.environment |= {"IRONSPAN_TEST_CLOCK": str(self._file), "PYTHONPATH": path}

    def ahead(self, seconds: int) -> None:
        """Set it, also for agents that run."""
        made = self._file.with_suffix(".new")
        made.write_text(str(seconds))
        made.replace(self._file)


def goes_on(agents: AgentSite, host: str, writer: Writer) -> None:
    """Wait until the log has what is written from now on."""
    now = writer.revision
    wait(lambda: agents.metric(host, "log_revision") > now, "the log goes on")


def test_a_clock_that_jumps_loses_nothing_and_hides_nothing(agents: AgentSite, client: EtcdClient) -> None:
    clock = Clock(agents, "a")
    with Writer(client) as writer:
        agents.start("a")
        wait(lambda: agents.found().snapshots, "a snapshot")
        for jump in (HOUR, -HOUR, 0):
            clock.ahead(jump)
            goes_on(agents, "a", writer)
            wait(lambda: agents.metrics("a").get("rpo_seconds", 1e9) < 30, "the log is not behind")
            assert agents.run("snapshot").returncode == 0
    wait(lambda: agents.metric("a", "active") == 1, "it writes still")
    insist_on_a_whole_log(agents, client, writer.revision, oldest=True)
    assert agents.metric("a", "gaps_total") == 0
    found = agents.found()
    revisions = [one.revision for one in found.snapshots]
    assert len(revisions) == 4
    newest = max(found.snapshots, key=lambda one: one.revision)
    latest = max(found.snapshots, key=lambda one: one.manifest.created)
    assert latest.manifest.created - newest.manifest.created > HOUR / 2, "the clock did jump"
    # A restore begins with what etcd had last, and that is what stays, whatever the clock said.
    assert agents.logged()[0] == newest.revision
    assert "newest" in plan(found, Retention(hourly=1, daily=1, weekly=1, monthly=1)).kept[key(newest)]


@pytest.mark.long
def test_hosts_whose_clocks_are_an_hour_apart_never_both_write(agents: AgentSite, client: EtcdClient) -> None:
    with Writer(client) as writer:
        agents.start("a")
        wait(lambda: agents.found().snapshots and agents.metric("a", "log_revision"), "it writes")
        Clock(agents, "b").ahead(HOUR)
        agents.start("b")
        # For a folder as the store, the lease is over when the other's clock says so.
        wait(lambda: agents.metric("b", "active"), "the one that is ahead takes over")
        wait(lambda: agents.metric("a", "active") == 0, "the other one ends")
        goes_on(agents, "b", writer)
    insist_on_a_whole_log(agents, client, writer.revision, oldest=True)


# -- disks -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def small(folder: Path, size: str) -> Iterator[Path]:
    """Mount a file system of a size at a folder."""
    needed("mount", "umount")
    folder.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "none", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.parametrize(
    "change",
    [pytest.param("size=64m", id="full"), pytest.param("rw", id="read-only", marks=pytest.mark.long)],
)
def test_neither_store_nor_spool_has_room_and_later_both_have(
    agents: AgentSite, client: EtcdClient, change: str
) -> None:
    with small(agents.folder / "store", "64m") as store, small(agents.folder / "spool-a", "1m") as spool:
        if change == "rw":
            subprocess.run(["mount", "-o", "remount,ro", spool], check=True)
        agents.start("a")
        wait(lambda: agents.found().snapshots, "a snapshot")
        wait(lambda: agents.metric("a", "log_revision") >= client.header().revision, "the log")
        ballast = fill(store)
        for number in range(30):
            last = client.put(b"/registry/secrets/%d" % number, os.urandom(100_000)).header.revision
        wait(lambda: agents.metric("a", 'errors_total{kind="spool"}'), "the spool's disk is said")
        wait(lambda: agents.metric("a", "rpo_seconds") > 3, "what would be lost is said")
        assert agents.metric("a", "log_revision") < last
        subprocess.run(["mount", "-o", f"remount,{change}", spool], check=True)
        ballast.unlink()
        insist_on_a_whole_log(agents, client, last, oldest=True)
        assert agents.metric("a", "gaps_total") == 0
        wait(lambda: agents.metrics("a").get("rpo_seconds", 1e9) < 3, "nothing would be lost any more")
        assert agents.stop("a") == 0


# -- members and snapshots -------------------------------------------------------------------------


def test_a_leader_killed_while_it_streams_leaves_no_snapshot(
    etcd_programs: dict[str, Path], tmp_path: Path
) -> None:
    with (
        running(etcd_programs["etcd"], tmp_path / "m", 3) as members,
        EtcdClient(members.endpoints, timeout=10) as client,
        site(tmp_path / "site", members.endpoints) as agents,
    ):
        for number in range(40):
            client.put(b"/registry/secrets/%d" % number, os.urandom(100_000))
        leader = look(client).leader
        assert leader is not None
        killed = next(name for name in members.names if members.endpoint(name) == leader.endpoint)
        host, port = leader.endpoint.removeprefix("http://").split(":")
        with TcpProxy(host, int(port), 2 << 20, "hold") as proxy:
            agents.settings["etcd"]["endpoints"] = [proxy.url]
            with (agents.folder / "first.log").open("wb") as log:
                process = subprocess.Popen(agents.command("a", "snapshot"), stderr=log)
            assert proxy.reached.wait(120)
            members.stop(killed, kill=True)
        assert process.wait(60) != 0
        assert not agents.found().snapshots
        assert not agents.found().unfinished
        # With all members to ask, the next try takes another one.
        agents.settings["etcd"]["endpoints"] = members.endpoints
        wait(lambda: agents.run("snapshot").returncode == 0, "a snapshot of another member")
        (taken,) = agents.found().snapshots
        assert taken.revision == client.header().revision


def test_the_status_of_a_snapshot_proves_nothing(
    etcd_programs: dict[str, Path], client: EtcdClient, tmp_path: Path
) -> None:
    """Why a backup counts only when it was restored: etcd's own check passes over a flipped bit."""
    client.put(b"/registry/secrets/a", b"a value of which a bit will flip")
    whole = b"".join(client.snapshot(client.endpoints[0]))
    at = whole.index(b"a value of which")
    damaged = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
    path = tmp_path / "snapshot.db"
    path.write_bytes(damaged)

    def run(program: str, *arguments: str) -> int:
        command = [str(etcd_programs[program]), "snapshot", *arguments, str(path)]
        return subprocess.run(command, capture_output=True, check=False).returncode

    assert run("etcdctl", "status") == 0
    assert run("etcdctl", "restore") == 0
    assert run("etcdutl", "status") == 0
    assert run("etcdutl", "restore", f"--data-dir={tmp_path / 'data'}") != 0
    with pytest.raises(EtcdError, match="cut or damaged"):
        b"".join(Checked([damaged], "m1"))
