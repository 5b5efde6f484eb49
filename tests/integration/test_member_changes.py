# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Members that join, leave, die, lose their disk and come back, as real etcd processes on loopback."""

from __future__ import annotations

import base64
import json
import mmap
import shutil
import signal
import subprocess
import threading
import time
import types
import typing as t
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.etcd_member import identity
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import etcd
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.etcd_cluster import (
    INPUT,
    EtcdCluster,
    peer_url,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.members import QuorumError, quorum
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import generate_key_file, open_store

from tests.support.faults import insist

from .loopback_cluster import Control, find_programs, running

pytestmark = pytest.mark.lab


class World:
    """Five hosts, three of which are members; the others are there to join."""

    def __init__(self, control: Control) -> None:
        self.control = control
        self.hosts = {
            name: types.SimpleNamespace(
                name=name,
                address=address,
                variables={"etcd_peer_port": control.peer_port, "etcd_client_port": control.etcd_port},
            )
            for name, address in control.members.items()
        }
        self.group = ["etcd-1", "etcd-2", "etcd-3"]

    def store(self, without: str = "") -> EtcdCluster:
        site = types.SimpleNamespace(group=lambda _: [self.hosts[name] for name in self.group])
        session: t.Any = types.SimpleNamespace(site=site, etcd_context=self.control.etcd_context)
        return EtcdCluster(session, [without])

    def add(self, name: str, compared: t.Collection[str] = (), bare: t.Collection[str] = ()) -> str:
        """Add a member as the action does; returns what it joins."""
        inputs, _ = self.store(name).add(t.cast("t.Any", self.hosts[name]), compared, bare)
        given = json.loads(inputs[INPUT])
        assert given["state"] == "existing"
        return str(given["cluster"])

    def promote(self, name: str) -> bool:
        return self.store(name).promote(t.cast("t.Any", self.hosts[name]), 120, print)

    def remove(self, name: str) -> str:
        removed, numbers = self.store().remove(t.cast("t.Any", self.hosts[name]))
        assert removed
        return numbers

    def join(self, name: str) -> None:
        self.control.start_etcd(name, joining=self.add(name))
        self.promote(name)

    def lose_disk(self, name: str) -> None:
        shutil.rmtree(self.control.folder / name / "data")

    def healthy(self, *names: str) -> bool:
        addresses = {name: self.control.members[name] for name in names}
        return not etcd.problems(etcd.ask_members(addresses, self.control.etcd_context()))

    def wait_until_healthy(self, *names: str) -> None:
        self.control.wait(lambda: self.healthy(*names))


@contextmanager
def made_of(folder: Path, flags: Sequence[str] = ()) -> Iterator[World]:
    """Three members that serve, and two more hosts."""
    programs = find_programs()
    store = open_store(folder / "pki", generate_key_file(folder / "pki.key"))
    store.ensure_cas()
    with running(Control(programs, store, folder, members=5)) as control:
        control.etcd_flags = flags
        made = World(control)
        for name in made.group:
            control.start_etcd(name, made.group)
        made.wait_until_healthy(*made.group)
        yield made


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with made_of(tmp_path) as made:
        yield made


def write(world: World, name: str, key: str) -> None:
    """Write a key; fails without a quorum."""
    membership = world.store().membership([name])
    membership._call("/v3/kv/put", {"key": key, "value": key})


def test_the_first_member_dies_and_is_replaced_and_another_joins(world: World) -> None:
    write(world, "etcd-2", "YQ==")
    world.control.stop("etcd-1")
    world.lose_disk("etcd-1")
    world.control.wait(lambda: quorum(world.store().answers()).healthy == 2)
    # Its disk is empty and it is still listed: it may not join under an identity that it has forgotten.
    with pytest.raises(ClusterError, match="etcd-1 has no data, and etcd lists it as member"):
        world.add("etcd-1")
    assert world.remove("etcd-1") == ("3 members, 2 needed, 2 healthy; after: 2 members, 2 needed, 2 healthy")
    world.join("etcd-1")
    world.wait_until_healthy("etcd-1", "etcd-2", "etcd-3")
    world.group.append("etcd-4")
    world.join("etcd-4")
    world.wait_until_healthy(*world.group)
    members = world.store().answers()
    assert len({member.hash for member in members}) == 1
    # What the host reads in the data is what the store lists.
    for member in members:
        log = next((world.control.folder / member.name / "data" / "member" / "wal").glob("*.wal"))
        assert identity(log.read_bytes()[:4096]) == {"member": member.member, "cluster": member.cluster}


def test_no_step_loses_the_quorum(world: World) -> None:
    world.control.stop("etcd-3")
    world.control.wait(lambda: quorum(world.store().answers()).healthy == 2)
    with pytest.raises(QuorumError, match="after: 2 members, 2 needed, 1 healthy"):
        world.remove("etcd-1")
    world.remove("etcd-3")
    world.remove("etcd-2")
    with pytest.raises(QuorumError, match="after: 0 members"):
        world.remove("etcd-1")
    write(world, "etcd-1", "YQ==")


def test_a_removed_member_that_comes_back_with_its_data_is_not_one(world: World) -> None:
    world.control.stop("etcd-3")
    world.remove("etcd-3")
    with pytest.raises(ClusterError, match="etcd does not list etcd-3, although it has data"):
        world.promote("etcd-3")
    world.lose_disk("etcd-3")
    world.join("etcd-3")
    world.wait_until_healthy(*world.group)


def test_a_member_that_lost_its_disk_cannot_start_by_itself(world: World) -> None:
    world.control.stop("etcd-3")
    world.lose_disk("etcd-3")
    # What the file says once a member has started: it joins a cluster of itself alone.
    host = t.cast("t.Any", world.hosts["etcd-3"])
    world.control.start_etcd("etcd-3", joining=f"etcd-3={peer_url(host)}")
    process = world.control.processes.pop("etcd-3")
    try:
        assert process.wait(180) != 0
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail("a member without data started")
    assert not (world.control.folder / "etcd-3" / "data" / "member" / "wal").exists()
    assert quorum(world.store().answers()).healthy == 2


def test_no_second_store_begins_while_members_are_down(world: World) -> None:
    for name in world.group:
        world.control.stop(name)
    world.lose_disk("etcd-3")
    began = time.monotonic()
    with pytest.raises(QuorumError) as refused:
        world.add("etcd-3", compared=["etcd-1", "etcd-3"], bare=["etcd-3"])
    assert "2 members, 2 needed, 0 healthy" in refused.value.message
    assert "beside etcd-1 with data; etcd-2 not looked at in this run" in refused.value.message
    assert time.monotonic() - began < 180


def test_an_address_is_used_again_by_another_host(world: World) -> None:
    world.control.stop("etcd-2")
    # Another name at the address of a member that is still listed.
    other = types.SimpleNamespace(**{**vars(world.hosts["etcd-2"]), "name": "etcd-4"})
    world.hosts["etcd-4"] = other
    world.group[1] = "etcd-4"
    with pytest.raises(ClusterError, match=r"its address .* is that of the member etcd-2, which is listed"):
        world.add("etcd-4")
    world.remove("etcd-4")
    world.control.members["etcd-4"] = world.control.members["etcd-2"]
    world.join("etcd-4")
    world.wait_until_healthy("etcd-1", "etcd-3", "etcd-4")


def test_one_learner_at_a_time(world: World) -> None:
    world.group.append("etcd-4")
    world.add("etcd-4")
    world.control.stop("etcd-3")
    world.remove("etcd-3")
    with pytest.raises(ClusterError, match="is a learner still"):
        world.add("etcd-3")
    # Nothing waits for the learner that never started: the two voters decide.
    write(world, "etcd-1", "YQ==")
    world.remove("etcd-4")


def test_a_learner_that_a_killed_run_left_is_found_and_promoted(world: World) -> None:
    world.group.insert(0, "etcd-4")
    world.control.start_etcd("etcd-4", joining=world.add("etcd-4"))
    # It is asked first, and refuses nearly every call.
    world.control.wait(lambda: [host.name for host in world.store().without_vote()] == ["etcd-4"])
    assert world.promote("etcd-4")
    assert world.store().without_vote() == []


@contextmanager
def cut_off(world: World, name: str) -> Iterator[None]:
    """A member that nobody reaches: its connections stay, and nothing comes through them."""
    process = world.control.processes[name]
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def test_the_link_is_cut_while_a_member_joins(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd, "_TIMEOUT_SECONDS", 2)
    world.group.append("etcd-4")
    world.control.start_etcd("etcd-4", joining=world.add("etcd-4"))
    store, host = world.store("etcd-4"), t.cast("t.Any", world.hosts["etcd-4"])
    with cut_off(world, "etcd-4"):
        with pytest.raises(ClusterError) as caught:
            store.promote(host, 3, print)
        insist("member-cut", str(caught.value))
        write(world, "etcd-1", "YQ==")
    # The same again, with a cut that ends in time.
    with cut_off(world, "etcd-4"):
        ended = threading.Timer(4, world.control.processes["etcd-4"].send_signal, [signal.SIGCONT])
        ended.start()
        assert store.promote(host, 120, print)
    world.wait_until_healthy(*world.group)


def test_the_leader_is_cut_off_while_a_member_joins(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd, "_TIMEOUT_SECONDS", 2)
    members = etcd.ask_members(world.control.members, world.control.etcd_context())
    leader = next(member.name for member in members if member.member and member.member == member.leader)
    world.group.append("etcd-4")
    with cut_off(world, leader):
        # The others elect another one; two of three are a quorum, and the learner needs no vote yet.
        joining: list[str] = []

        def joined() -> bool:
            with suppress(ClusterError):
                joining.append(world.add("etcd-4"))
            return bool(joining)

        world.control.wait(joined)
    world.control.start_etcd("etcd-4", joining=joining[0])
    world.promote("etcd-4")
    world.wait_until_healthy(*world.group)


def leader(world: World) -> str:
    answers = world.store().answers()
    return next(member.name for member in answers if member.member and member.member == member.leader)


@pytest.mark.long
def test_the_leader_leaves_and_another_joins_while_one_is_down(world: World) -> None:
    write(world, "etcd-1", "YQ==")
    left = leader(world)
    world.remove(left)
    # A member that is removed ends by itself.
    world.control.stop(left)
    others = [name for name in world.group if name != left]
    world.wait_until_healthy(*others)
    world.lose_disk(left)
    world.join(left)
    world.group.append("etcd-4")
    world.join("etcd-4")
    world.wait_until_healthy(*world.group)
    # Three of four are a quorum of five too, so etcd lets a fifth in.
    world.control.stop(others[0])
    world.control.wait(lambda: quorum(world.store().answers()).healthy == 3)
    world.group.append("etcd-5")
    world.join("etcd-5")
    write(world, "etcd-5", "Yg==")
    world.control.start_etcd(others[0])
    world.wait_until_healthy(*world.group)


VALUE = b"a value that gets damaged on one disk"


def damage(database: Path) -> None:
    """Change a bit of a value in the file of a member that runs, wherever the file has it."""
    with database.open("r+b") as file, mmap.mmap(file.fileno(), 0) as pages:
        at = pages.find(VALUE)
        assert at >= 0
        while at >= 0:
            pages[at] ^= 1
            at = pages.find(VALUE, at)


@pytest.fixture
def checked(tmp_path: Path) -> Iterator[World]:
    """Members that compare their data as in production, and ask each other every second."""
    gates = "--feature-gates=InitialCorruptCheck=true,CompactHashCheck=true"
    with made_of(tmp_path, [gates, "--compact-hash-check-time=1s"]) as made:
        yield made


def test_a_corrupt_member_is_found_and_replaced(checked: World) -> None:
    world = checked
    call = world.store().membership(world.group)._call
    key, value = (base64.b64encode(text).decode() for text in (b"/registry/pods/a", VALUE))
    call("/v3/kv/put", {"key": key, "value": value})
    victim = next(name for name in world.group if name != leader(world))
    database = world.control.folder / victim / "data/member/snap/db"
    world.control.wait(lambda: VALUE in database.read_bytes())
    damage(database)
    revision = call("/v3/kv/put", {"key": "Yg==", "value": "Yg=="})["header"]["revision"]
    call("/v3/kv/compaction", {"revision": revision, "physical": True})
    world.control.wait(lambda: any("CORRUPT" in m.alarms for m in world.store().answers()))
    with pytest.raises(ClusterError, match="corrupt"):
        write(world, "etcd-1", "YQ==")
    world.control.stop(victim)
    world.remove(victim)
    world.lose_disk(victim)
    world.join(victim)
    world.wait_until_healthy(*world.group)
    assert call("/v3/kv/range", {"key": key})["kvs"][0]["value"] == value
    write(world, "etcd-1", "YQ==")
    assert len({member.hash for member in world.store().answers()}) == 1
