# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Real etcd members on loopback addresses, in plain HTTP, for tests of what speaks to etcd.

The programs come out of the mirror's archive, or from the folder that IRONSPAN_TEST_BINARIES names.
Where TLS matters there is tests/integration/loopback_cluster.py.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ironspan.etcd.client import EtcdClient
from ironspan.etcd.errors import EtcdError
from tests.support.ports import free_network

VERSION = "3.6.14"
CALM = ("--heartbeat-interval=300", "--election-timeout=3000")
"""Flags where elections are the tests': a second without the processor must not be one."""


def find_etcd(
    folder: Path, names: Sequence[str] = ("etcd", "etcdctl", "etcdutl"), version: str = VERSION
) -> dict[str, Path]:
    """Return etcd's programs by name, unpacked into ``folder`` when they come from the mirror.

    Without them the test is skipped, or fails when IRONSPAN_REQUIRE_LAB is 1.
    """
    given = os.environ.get("IRONSPAN_TEST_BINARIES")
    if given:
        return {name: Path(given) / name for name in names}
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    archive = f"v{version}/etcd-v{version}-linux-amd64.tar.gz"
    source = cache / "ironspan/mirror/github.com/etcd-io/etcd/releases/download" / archive
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(source) as packed:
            for member in packed:
                name = Path(member.name).name
                if member.isfile() and name in names:
                    content = packed.extractfile(member)
                    assert content is not None
                    with (folder / name).open("wb") as target:
                        shutil.copyfileobj(content, target)
                    (folder / name).chmod(0o755)
        return {name: (folder / name).resolve(strict=True) for name in names}
    except OSError as error:
        message = f"the mirror lacks a program for this test ({error}); run `ironspan artifacts build`"
        if os.environ.get("IRONSPAN_REQUIRE_LAB") == "1":
            pytest.fail(message)
        pytest.skip(message)


class Members:
    """The members of one etcd cluster, each a process.

    Args:
        program: the etcd program.
        folder: for data folders and logs.
        count: number of members.
        flags: further flags of every member.

    Attributes:
        prefix: what the program is started by, if by anything.
    """

    prefix: Sequence[str] = ()

    def __init__(self, program: Path, folder: Path, count: int = 1, flags: Sequence[str] = ()) -> None:
        self.program, self.folder, self.flags = program, folder, tuple(flags)
        self.network = free_network(2379)
        self.names = [f"m{number}" for number in range(1, count + 1)]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def _url(self, name: str, port: int) -> str:
        return f"http://{self.network}.{name[1:]}:{port}"

    def endpoint(self, name: str = "m1") -> str:
        """Return the client URL of a member."""
        return self._url(name, 2379)

    def advertised(self, name: str) -> str:
        """Return the client URL that a member tells others."""
        return self.endpoint(name)

    @property
    def endpoints(self) -> list[str]:
        """Return the client URLs of all members."""
        return [self.endpoint(name) for name in self.names]

    def start(self, name: str) -> None:
        """Start a member, for the first time or again."""
        cluster = ",".join(f"{member}={self._url(member, 2380)}" for member in self.names)
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [
                    *self.prefix,
                    str(self.program),
                    f"--name={name}",
                    f"--data-dir={self.folder / name}",
                    f"--initial-cluster={cluster}",
                    f"--initial-cluster-token={self.network}",
                    f"--initial-advertise-peer-urls={self._url(name, 2380)}",
                    f"--listen-peer-urls={self._url(name, 2380)}",
                    f"--listen-client-urls={self._url(name, 2379)}",
                    f"--advertise-client-urls={self.advertised(name)}",
                    "--unsafe-no-fsync",
                    *self.flags,
                ],
                stdout=log,
                stderr=log,
            )

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal, such as SIGSTOP and SIGCONT, to a member."""
        self.processes[name].send_signal(number)

    def stop(self, name: str, *, kill: bool = False) -> None:
        """End a member; ``kill`` gives it no time."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGCONT)
        process.kill() if kill else process.terminate()
        process.wait(120)

    def wait(self, name: str, seconds: float = 120) -> None:
        """Wait until a member serves with a leader; fails with its log when it does not."""
        end = time.monotonic() + seconds
        with EtcdClient([self.endpoint(name)], timeout=1) as client:
            while True:
                with contextlib.suppress(EtcdError):
                    if client.header().revision:
                        return
                if time.monotonic() > end or self.processes[name].poll() is not None:
                    log = (self.folder / f"{name}.log").read_text()
                    pytest.fail(f"{name} does not come up:\n{log[-3000:]}")
                time.sleep(0.05)

    def wait_for_revision(self, revision: int, seconds: float = 60) -> None:
        """Wait until every member has a revision; fails when one stays behind.

        A follower applies a write after the leader answered it: asked for its hash before, it says
        "required revision is a future revision".
        """
        end = time.monotonic() + seconds
        with EtcdClient(self.endpoints, timeout=5) as client:
            for endpoint in self.endpoints:
                while (found := client.status(endpoint).header.revision) < revision:
                    if time.monotonic() > end:
                        pytest.fail(f"{endpoint} stays at revision {found}, before {revision}")
                    time.sleep(0.02)


@contextlib.contextmanager
def running(program: Path, folder: Path, count: int = 1, flags: Sequence[str] = ()) -> Iterator[Members]:
    """Start members, wait until they serve, and end them."""
    members = Members(program, folder, count, flags)
    with serving(members):
        yield members


@contextlib.contextmanager
def serving(members: Members) -> Iterator[None]:
    """Start members that are there, wait until they serve, and end them."""
    try:
        for name in members.names:
            members.start(name)
        for name in members.names:
            members.wait(name)
        yield
    finally:
        for name in list(members.processes):
            members.stop(name, kill=True)
