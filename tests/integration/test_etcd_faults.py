# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Real faults of real members: links, disks, kills, damaged bytes. What was acknowledged is there afterwards.

docs/etcd-cases.md says which case of the catalogue each test shows.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ironspan.backup.agent.snapshotter import Checked
from ironspan.backup.care.health import look
from ironspan.etcd.client import ALL, EtcdClient
from ironspan.etcd.errors import EtcdError
from tests.integration.test_backup_log import Site, durable, replayed, started, stored_in_etcd
from tests.integration.test_full_disk import fill
from tests.support.etcd_members import Members, running
from tests.support.partitions import PartitionedMembers, injected, needed, partitioned

MIB = 1 << 20


@pytest.fixture(scope="module")
def program(etcd_programs: dict[str, Path]) -> Path:
    return etcd_programs["etcd"]


class Writing:
    """Writes key after key, each once, at every member in turn; knows which were acknowledged and how."""

    def __init__(self, members: Members) -> None:
        self.acknowledged: dict[bytes, int] = {}
        self._clients = [EtcdClient([endpoint], timeout=0.3) for endpoint in members.endpoints]
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Writing:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end.set()
        self._thread.join()
        for client in self._clients:
            client.close()

    def _run(self) -> None:
        number = 0
        while not self._end.wait(0.002):
            number += 1
            key = b"/registry/pods/%d" % number
            with contextlib.suppress(EtcdError):
                answer = self._clients[number % len(self._clients)].put(key, key)
                self.acknowledged[key] = answer.header.revision

    def go_on(self, count: int = 12, seconds: float = 180) -> None:
        """Wait until so many more writes were acknowledged."""
        wanted = len(self.acknowledged) + count
        wait(lambda: len(self.acknowledged) >= wanted, seconds)


def wait(condition: Callable[[], object], seconds: float = 180) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def leader_of(client: EtcdClient) -> str:
    """Return the name of the member that leads."""
    end = time.monotonic() + 120
    while (leader := look(client).leader) is None:
        assert time.monotonic() < end, "nobody is elected"
        time.sleep(0.1)
    names = {member.ID: member.name for member in client.members()}
    return names[leader.id]


def insist_on_equal_members(members: Members, client: EtcdClient) -> None:
    """Insist that every member has the same keys, values and revisions."""
    for name in members.names:
        members.wait(name)
    # A revision of its own: of one that was compacted a member remembers a hash over what was before.
    revision = client.put(b"/registry/compared", b"").header.revision
    members.wait_for_revision(revision)
    hashes = [client.hash_kv(endpoint, revision) for endpoint in members.endpoints]
    assert len({(one.compact_revision, one.hash) for one in hashes}) == 1


def insist_on_what_was_acknowledged(members: Members, client: EtcdClient, written: dict[bytes, int]) -> None:
    """Insist on every acknowledged write at its revision, at every member."""
    insist_on_equal_members(members, client)
    found = {bytes(kv.key): kv.mod_revision for page in client.pages() for kv in page.kvs}
    assert written
    assert {key: found.get(key) for key in written} == written


# -- links between members -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def apart(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PartitionedMembers]:
    with partitioned(program, tmp_path_factory.mktemp("net")) as members:
        yield members


def flap(apart: PartitionedMembers, name: str) -> None:
    for _ in range(6):
        apart.isolate(name)
        time.sleep(0.25)
        apart.heal()
        time.sleep(0.25)


LINKS: dict[str, Callable[[PartitionedMembers, str, str], object]] = {
    "the leader is cut off": lambda apart, leader, _: apart.isolate(leader),
    "from the leader to a follower nothing passes": lambda apart, leader, other: apart.drop(leader, other),
    "from a follower to the leader nothing passes": lambda apart, leader, other: apart.drop(other, leader),
    "the leader loses a fifth": lambda apart, leader, _: apart.isolate(leader, 20),
    "a link flaps": lambda apart, leader, _: flap(apart, leader),
}


@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, marks=pytest.mark.long if number else ()) for number, fault in enumerate(LINKS)],
)
def test_links_between_members_fail_in_every_way(
    apart: PartitionedMembers, tmp_path: Path, fault: str
) -> None:
    with EtcdClient(apart.endpoints, timeout=5) as client:
        client.delete(ALL, ALL)
        site = Site(client, tmp_path)
        with started(site.pipeline()) as pipeline:
            with Writing(apart) as writing:
                writing.go_on()
                leader = leader_of(client)
                other = next(name for name in apart.names if name != leader)
                LINKS[fault](apart, leader, other)
                # Two of three hear each other: the cluster goes on while it lasts.
                writing.go_on()
                apart.heal()
                writing.go_on()
            insist_on_what_was_acknowledged(apart, client, writing.acknowledged)
            durable(pipeline, client.header().revision)
        assert replayed(site.log()) == stored_in_etcd(client)


# -- disks -----------------------------------------------------------------------------------------


@pytest.fixture
def synced(program: Path, tmp_path: Path) -> Iterator[Members]:
    """Three members that wait for their disks, as in production."""
    with running(program, tmp_path / "m", 3, ["--unsafe-no-fsync=false"]) as members:
        yield members


def follower_of(members: Members, client: EtcdClient) -> str:
    leader = leader_of(client)
    return next(name for name in members.names if name != leader)


def ended(members: Members, name: str) -> None:
    """Wait until a member has ended by itself."""
    wait(lambda: members.processes[name].poll() is not None)
    del members.processes[name]


def test_a_disk_that_fails_ends_its_member_and_no_other(synced: Members) -> None:
    with EtcdClient(synced.endpoints, timeout=5) as client, Writing(synced) as writing:
        writing.go_on()
        victim = leader_of(client)
        with injected(synced.processes[victim].pid, "fdatasync", "error=EIO:when=1"):
            ended(synced, victim)
        assert "input/output error" in (synced.folder / f"{victim}.log").read_text()
        writing.go_on()
        synced.start(victim)
        synced.wait(victim)
        writing.go_on()
        writing.__exit__()
        insist_on_what_was_acknowledged(synced, client, writing.acknowledged)


def fsyncs(members: Members, name: str) -> tuple[float, float]:
    """Return how many synchronous writes of its log a member did, and how many of them within 8 ms."""
    with urllib.request.urlopen(f"{members.endpoint(name)}/metrics", timeout=10) as answer:
        lines = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[0] != "#")
    prefix = "etcd_disk_wal_fsync_duration_seconds_"
    return float(lines[f"{prefix}count"]), float(lines[f'{prefix}bucket{{le="0.008"}}'])


@pytest.mark.long
def test_a_slow_disk_slows_writes_and_is_seen(synced: Members) -> None:
    with EtcdClient(synced.endpoints, timeout=30) as client:
        leader = leader_of(client)
        all_before, quick_before = fsyncs(synced, leader)
        with injected(synced.processes[leader].pid, "fdatasync", "delay_enter=500000"):
            for number in range(3):
                client.put(b"/registry/pods/%d" % number, b"")
        all_after, quick_after = fsyncs(synced, leader)
        # What EtcdSlowDisk looks at. The leader stays: nobody but a person knows a better one.
        assert (all_after - all_before) > (quick_after - quick_before)
        assert leader_of(client) == leader
        insist_on_equal_members(synced, client)


def test_a_full_disk_ends_its_member_which_comes_back_with_room(program: Path, tmp_path: Path) -> None:
    needed("mount", "umount")
    members = Members(program, tmp_path / "m", 3)
    small = members.folder / "m3"
    small.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160m,mode=700", "none", small], check=True)
    try:
        for name in members.names:
            members.start(name)
        for name in members.names:
            members.wait(name)
        with EtcdClient(members.endpoints[:2], timeout=5) as client:
            wait(lambda: len(list(small.glob("member/wal/*"))) > 1)
            ballast = fill(small)
            for number in range(1000):
                # A leader whose disk is full takes with it what it was given and did not acknowledge.
                with contextlib.suppress(EtcdError):
                    client.put(b"/registry/secrets/%d" % number, os.urandom(MIB // 4))
                if members.processes["m3"].poll() is not None:
                    break
            ended(members, "m3")
            assert "no space left on device" in (members.folder / "m3.log").read_text()
            revisions: list[int] = []

            def written() -> bool:
                with contextlib.suppress(EtcdError):
                    revisions.append(client.put(b"/registry/pods/after", b"").header.revision)
                return bool(revisions)

            # The two others elect a leader, if it was that one.
            wait(written)
            ballast.unlink()
            members.start("m3")
            members.wait("m3")
            with EtcdClient(members.endpoints, timeout=5) as everybody:
                insist_on_what_was_acknowledged(members, everybody, {b"/registry/pods/after": revisions[-1]})
    finally:
        for name in list(members.processes):
            members.stop(name, kill=True)
        subprocess.run(["umount", small], check=True)


# -- kills -----------------------------------------------------------------------------------------


@pytest.fixture
def three(program: Path, tmp_path: Path) -> Iterator[Members]:
    with running(program, tmp_path / "m", 3) as members:
        yield members


def test_a_member_killed_before_its_rewritten_file_takes_its_place(three: Members) -> None:
    with EtcdClient(three.endpoints, timeout=10) as client:
        written = {}
        for number in range(40):
            written[b"/registry/pods/%d" % (number % 5)] = client.put(
                b"/registry/pods/%d" % (number % 5), os.urandom(MIB // 8)
            ).header.revision
        client.compact(client.header().revision, physical=True)
        victim = follower_of(three, client)
        with injected(three.processes[victim].pid, "rename,renameat,renameat2", "signal=KILL"):
            with pytest.raises(EtcdError):
                client.defragment(three.endpoint(victim), timeout=60)
            ended(three, victim)
        assert (three.folder / victim / "member/snap/db").exists()
        three.start(victim)
        insist_on_what_was_acknowledged(three, client, written)
        client.defragment(three.endpoint(victim))
        insist_on_what_was_acknowledged(three, client, written)
        assert not list((three.folder / victim / "member/snap").glob("db.tmp*"))


def test_a_snapshot_while_the_file_is_rewritten_is_whole(three: Members) -> None:
    with EtcdClient(three.endpoints, timeout=30) as client:
        for number in range(40):
            client.put(b"/registry/pods/%d" % (number % 5), os.urandom(MIB // 8))
        parts = client.snapshot(three.endpoint("m1"))
        first = next(parts)
        rewriting = threading.Thread(target=client.defragment, args=[three.endpoint("m1")])
        rewriting.start()
        stream = verified(iter([first, *parts]))
        rewriting.join()
        assert stream > 4 * MIB
        insist_on_equal_members(three, client)


def verified(parts: Iterator[bytes]) -> int:
    """Read a snapshot as the agent does, its checksum too, and return its length."""
    stream = Checked(parts, "m1")
    return sum(len(part) for part in stream)


@pytest.mark.long
def test_a_leader_that_was_frozen_answers_with_nothing_old(three: Members) -> None:
    with EtcdClient(three.endpoints, timeout=10) as client:
        client.put(b"/registry/pods/a", b"old")
        frozen = leader_of(client)
        others = [three.endpoint(name) for name in three.names if name != frozen]
        three.signal(frozen, signal.SIGSTOP)
        try:
            with EtcdClient(others, timeout=2) as rest:

                def taken() -> bool:
                    with contextlib.suppress(EtcdError):
                        return bool(rest.put(b"/registry/pods/a", b"new"))
                    return False

                wait(taken)
        finally:
            three.signal(frozen, signal.SIGCONT)
        # The first answers after it woke up: errors, or what the others know.
        with EtcdClient([three.endpoint(frozen)], timeout=2) as woken:
            for _ in range(50):
                with contextlib.suppress(EtcdError):
                    assert woken.range(b"/registry/pods/a").kvs[0].value == b"new"
        insist_on_equal_members(three, client)


def test_all_members_lose_power_and_one_the_end_of_its_log(synced: Members) -> None:
    with EtcdClient(synced.endpoints, timeout=5) as client:
        with Writing(synced) as writing:
            writing.go_on(200)
            # With m3's part of its log, writes may go that it alone had beside the leader: these all have.
            kept = dict(writing.acknowledged)
            synced.wait_for_revision(max(kept.values()))
            writing.go_on()
            for name in synced.names:
                synced.signal(name, signal.SIGKILL)
        for name in synced.names:
            ended(synced, name)
        # What a disk had not written yet: the last sectors are as they were before, all zero.
        torn = max((synced.folder / "m3/member/wal").glob("*.wal"), key=lambda path: path.name)
        log = torn.read_bytes()
        end = len(log.rstrip(b"\0"))
        begin = (end - 600) // 512 * 512
        torn.write_bytes(log[:begin] + bytes(len(log) - begin))
        for name in synced.names:
            synced.start(name)
        insist_on_what_was_acknowledged(synced, client, kept)
