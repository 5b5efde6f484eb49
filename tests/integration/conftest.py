# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What integration tests share: one small lab with a cluster on it, and etcd members on loopback.

``IRONSPAN_TEST_LAB=NAME`` uses (and keeps) a lab of that name, for people who work on these tests.
"""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile
import time
import typing as t

import pytest

from ironspan.etcd.client import EtcdClient
from ironspan.lab import Lab
from tests.support.etcd_members import Members, find_etcd, running
from tests.support.playbooks import BIN, ROOT, Played, play

WATCHED = "/etc /opt /usr/local /var/lib/ironspan"


@dataclasses.dataclass
class Cluster:
    """The lab, its cluster, and the run that built it."""

    lab: Lab
    folder: pathlib.Path
    first: Played | None = None
    CONTROL_PLANE: t.ClassVar[str] = "az-1"

    @property
    def inventory(self) -> pathlib.Path:
        """Return the lab's inventory."""
        return self.lab.inventory_path

    def site(self, *options: str) -> Played:
        """Run site.yml."""
        return play("site", self.inventory, self.folder, *options)

    def assert_settled(self) -> None:
        """Insist that an operation left nothing for site.yml to do: one SSH operation a host."""
        checked = self.site("--check")
        assert (checked.status, checked.changed) == (0, {}), checked.output[-6000:]

    def on(self, host: str, command: str, check: bool = True) -> str:
        """Run a shell command on a host and return its output."""
        done = subprocess.run(
            self.lab.ssh_command(host, [command]),
            text=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=300,
        )
        assert not check or done.returncode == 0, f"{host}: {command}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def kubectl(self, *arguments: str) -> dict[str, t.Any]:
        """Ask the cluster with kubectl, on a control plane, so that nothing of ironspan is in between."""
        command = shlex.join(
            ["kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", *arguments, "-o", "json"]
        )
        return dict(json.loads(self.on(self.CONTROL_PLANE, command)))

    def ready_nodes(self) -> set[str]:
        """Return the names of nodes that are Ready."""
        return {
            node["metadata"]["name"]
            for node in self.kubectl("get", "nodes")["items"]
            for condition in node["status"]["conditions"]
            if condition["type"] == "Ready" and condition["status"] == "True"
        }

    def wait_until_ready(self, names: set[str]) -> None:
        """Wait until these nodes are Ready and no others: a busy kubelet tells late that it is well."""
        end = time.monotonic() + 180
        while (found := self.ready_nodes()) != names:
            assert time.monotonic() < end, f"Ready are {sorted(found)}, not {sorted(names)}"
            time.sleep(1)

    def address(self, host: str) -> str:
        """Return a host's address."""
        for line in self.lab.ssh_command(host):
            if line.startswith("root@"):
                return line.removeprefix("root@")
        raise AssertionError(host)

    def digests(self, host: str) -> dict[str, str]:
        """Return the SHA-256 of every file that ironspan could have written on a host, by path."""
        found = self.on(host, f"find {WATCHED} -xdev -type f -print0 | xargs -0 sha256sum")
        pairs = (line.split(None, 1) for line in found.splitlines())
        return {path: digest for digest, path in pairs if not path.startswith("/var/lib/ironspan/")}

    def command(self, *arguments: str, timeout: float = 900) -> subprocess.CompletedProcess[str]:
        """Run the ironspan command."""
        return subprocess.run(
            [str(BIN / "ironspan"), *arguments],
            cwd=ROOT,
            env=os.environ | {"XDG_STATE_HOME": str(self.folder / "state")},
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=timeout,
        )


def lab_name(name: str) -> str:
    """Return the name of a lab for tests: processes that run tests at once have a lab each."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    return f"{name[: 12 - len(worker)]}{worker}"


@contextlib.contextmanager
def lab_cluster[Made: Cluster](kind: type[Made], name: str, **size: t.Any) -> collections.abc.Iterator[Made]:
    """Bring a lab up and build its cluster; afterwards it is gone.

    Args:
        kind: what stands for the cluster.
        name: that its name begins with.
        size: arguments of ``Lab.up``.
    """
    if os.geteuid() != 0:
        pytest.skip("the lab needs root")
    kept = os.environ.get("IRONSPAN_TEST_LAB")
    made = kind(Lab(kept or lab_name(name)), pathlib.Path(tempfile.mkdtemp(prefix="isi-", dir="/tmp")))
    try:
        made.lab.up(**size)
        made.first = made.site()
        yield made
    finally:
        if not kept:
            made.lab.down()
        shutil.rmtree(made.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster() -> collections.abc.Iterator[Cluster]:
    """Bring a small lab up and build its cluster."""
    with lab_cluster(Cluster, "itest", azure=3, rack=2) as made:
        yield made


@pytest.fixture(scope="session")
def etcd_programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pathlib.Path]:
    """Return etcd's programs by name, unpacked once."""
    return find_etcd(tmp_path_factory.mktemp("etcd-programs"))


@pytest.fixture(scope="module")
def members(
    request: pytest.FixtureRequest,
    etcd_programs: dict[str, pathlib.Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> collections.abc.Iterator[Members]:
    """Run etcd for all tests of a module, which may say ETCD_MEMBERS (1) and ETCD_FLAGS."""
    count = getattr(request.module, "ETCD_MEMBERS", 1)
    flags = getattr(request.module, "ETCD_FLAGS", ())
    with running(etcd_programs["etcd"], tmp_path_factory.mktemp("etcd"), count, flags) as started:
        yield started


@pytest.fixture
def client(members: Members) -> collections.abc.Iterator[EtcdClient]:
    """Return a client of the members."""
    with EtcdClient(members.endpoints, timeout=10) as made:
        yield made
