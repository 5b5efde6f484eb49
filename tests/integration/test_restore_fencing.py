# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""After a restore: members with old data stay out, and watches from before are told, not left in silence.

Every such test has a counterpart that shows that the same thing goes wrong without the restore's precaution.
"""

from __future__ import annotations

import re
import secrets
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._restore.store import bump_of

from ironspan.etcd.client import EtcdClient
from ironspan.etcd.errors import EtcdError
from tests.support.etcd_members import Members, find_etcd
from tests.support.waiting import until

pytestmark = pytest.mark.lab
ALL = ("m1", "m2", "m3")
FEW, MANY = 20, 100
LOST_WRITES = 50
"""Written after the snapshot: clients have seen revisions that the snapshot does not have."""


class Disaster:
    """Three members whose data are lost but for a snapshot, and for what the stale one kept."""

    def __init__(self, folder: Path) -> None:
        self.programs = find_etcd(folder / "bin")
        self.folder = folder
        self.members = Members(self.programs["etcd"], folder / "data", 3)
        self.snapshot, self.old = folder / "snapshot.db", folder / "old"
        self.revision = self.cluster = 0

    def happen(self) -> None:
        """Write, take the snapshot, write more, and lose all members at once."""
        for name in ALL:
            self.members.start(name)
        for name in ALL:
            self.members.wait(name)
        with self.client("m1") as client:
            self.put(client, range(20))
            self.run("etcdctl", f"--endpoints={self.members.endpoint()}", "snapshot", "save", self.snapshot)
            self.put(client, range(LOST_WRITES))
            header = client.range(b"k").header
            self.revision, self.cluster = header.revision, header.cluster_id
        self.end()
        shutil.copytree(self.members.folder, self.old)

    def restore(self, names: Sequence[str], token: str, *options: str, alone: bool = True) -> None:
        """Make data of the snapshot and start these members with them."""
        listed = names if alone else ALL
        for name in names:
            folder = self.members.folder / name
            shutil.rmtree(folder, ignore_errors=True)
            self.run(
                "etcdutl", "snapshot", "restore", self.snapshot, "--name", name, "--data-dir", folder,
                "--initial-cluster", ",".join(f"{n}={self.members._url(n, 2380)}" for n in listed),
                "--initial-advertise-peer-urls", self.members._url(name, 2380),
                "--initial-cluster-token", token, *options,
            )  # fmt: skip
        for name in names:
            self.members.start(name)
        for name in names:
            self.members.wait(name)

    def fenced(self) -> None:
        """Restore one member as the product does."""
        bump = bump_of(1, self.revision)
        options = ("--bump-revision", str(bump), "--mark-compacted")
        self.restore(["m1"], f"ironspan-{secrets.token_hex(16)}", *options)

    def stale(self, name: str = "m3") -> Path:
        """Start a member with its old data; returns its log."""
        shutil.rmtree(self.members.folder / name, ignore_errors=True)
        shutil.copytree(self.old / name, self.members.folder / name)
        log = self.members.folder / f"{name}.log"
        log.unlink(missing_ok=True)
        self.members.start(name)
        return log

    def client(self, name: str) -> EtcdClient:
        return EtcdClient([self.members.endpoint(name)], timeout=60)

    def put(self, client: EtcdClient, numbers: Sequence[int]) -> None:
        for number in numbers:
            client.put(f"k{number % 10}".encode(), secrets.token_hex(10).encode())

    def run(self, program: str, *arguments: object) -> str:
        done = subprocess.run(
            [self.programs[program], *map(str, arguments)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def cluster_of(self, name: str) -> int:
        with self.client(name) as client:
            return client.range(b"k").header.cluster_id

    def end(self) -> None:
        for name in list(self.members.processes):
            self.members.stop(name, kill=True)


@pytest.fixture(scope="module")
def happened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disaster]:
    made = Disaster(tmp_path_factory.mktemp("disaster"))
    try:
        made.happen()
        yield made
    finally:
        made.end()


@pytest.fixture
def disaster(happened: Disaster) -> Iterator[Disaster]:
    """All data are lost; each test begins with that."""
    shutil.rmtree(happened.members.folder)
    happened.members.folder.mkdir()
    yield happened
    happened.end()


def says(log: Path, text: str, seconds: float = 120) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if log.exists() and text in log.read_text():
            return True
        time.sleep(0.02)
    return False


def stays_out(disaster: Disaster, log: Path) -> bool:
    """Tell whether the stale member was turned away and serves nobody."""
    if not says(log, "cluster ID mismatch"):
        return False
    with EtcdClient([disaster.members.endpoint("m3")], timeout=0.2) as client:
        try:
            client.range(b"k1")
        except EtcdError:
            return True
    return False


@pytest.mark.parametrize("tries", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
def test_a_member_with_old_data_is_turned_away(disaster: Disaster, tries: int) -> None:
    turned_away = 0
    for number in range(tries):
        if number % 10 == 0:
            disaster.end()
            disaster.fenced()
        turned_away += stays_out(disaster, disaster.stale())
        disaster.members.stop("m3", kill=True)
    assert turned_away == tries
    with disaster.client("m1") as client:
        # It goes on beyond every revision that anybody has seen, and has taken nothing of the old data.
        assert client.range(b"k1").header.revision > disaster.revision + 1_000_000_000
        disaster.put(client, [1])
    assert disaster.cluster_of("m1") != disaster.cluster


def test_with_the_former_token_it_would_have_joined(disaster: Disaster) -> None:
    disaster.restore(["m1", "m2"], disaster.members.network, alone=False)
    log = disaster.stale()
    # It takes part in the same raft again, although it has writes that the others do not have.
    assert says(log, "elected leader")
    assert "cluster ID mismatch" not in log.read_text()
    assert disaster.cluster_of("m1") == disaster.cluster


def test_another_token_alone_keeps_it_out(disaster: Disaster) -> None:
    disaster.restore(["m1", "m2"], f"ironspan-{secrets.token_hex(16)}", alone=False)
    assert stays_out(disaster, disaster.stale())
    assert disaster.cluster_of("m1") == disaster.cluster_of("m2") != disaster.cluster


class Watches:
    """Many watches in one etcdctl, opened before the disaster, which go on by themselves after it."""

    def __init__(self, disaster: Disaster, count: int) -> None:
        self.log = disaster.folder / "watch.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [disaster.programs["etcdctl"], f"--endpoints={disaster.members.endpoint()}", "watch", "-i"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
            )
        assert self.process.stdin is not None
        for number in range(count):
            self.process.stdin.write(f"watch k{number % 10}\n")
        self.process.stdin.flush()

    def count(self, text: str) -> int:
        return self.log.read_text().count(text)

    def wait_for(self, text: str, count: int, seconds: float) -> int:
        end = time.monotonic() + seconds
        while self.count(text) < count and time.monotonic() < end:
            time.sleep(0.05)
        return self.count(text)


def watchers(endpoint: str) -> int:
    """Return how many watches a member serves."""
    with urllib.request.urlopen(f"{endpoint}/metrics", timeout=60) as answer:
        found = re.search(r"^etcd_debugging_mvcc_watcher_total (\d+)$", answer.read().decode(), re.MULTILINE)
    return int(found[1]) if found else 0


@pytest.fixture
def watched(disaster: Disaster, request: pytest.FixtureRequest) -> Iterator[Watches]:
    """Bring the old cluster up once more, with watches on it that have seen its last revisions."""
    shutil.copytree(disaster.old, disaster.members.folder, dirs_exist_ok=True)
    for name in ALL:
        disaster.members.start(name)
    for name in ALL:
        disaster.members.wait(name)
    watches = Watches(disaster, request.param)
    try:
        until(lambda: watchers(disaster.members.endpoint("m1")) >= request.param)
        with disaster.client("m1") as client:
            disaster.put(client, range(10))
            disaster.revision = client.range(b"k").header.revision
        assert watches.wait_for("PUT", request.param, 120) == request.param
        disaster.end()
        yield watches
    finally:
        watches.process.kill()
        watches.process.wait()


@pytest.mark.parametrize("watched", [FEW, pytest.param(MANY, marks=pytest.mark.long)], indirect=True)
def test_watches_of_before_get_an_error(
    disaster: Disaster, watched: Watches, request: pytest.FixtureRequest
) -> None:
    count = watched.count("PUT")
    disaster.fenced()
    assert watched.wait_for("required revision has been compacted", count, 120) == count
    assert watched.count("PUT") == count


@pytest.mark.long
@pytest.mark.parametrize("watched", [5], indirect=True)
def test_without_higher_revisions_they_would_hear_nothing(disaster: Disaster, watched: Watches) -> None:
    disaster.restore(["m1"], "another")
    with disaster.client("m1") as client:
        disaster.put(client, range(10))
    # Long enough for the watches to be there again: a new one hears of the next write at once.
    time.sleep(3)
    with disaster.client("m1") as client:
        disaster.put(client, range(5))
    time.sleep(1)
    assert watched.count("PUT") == 5
    assert watched.count("compacted") == 0
