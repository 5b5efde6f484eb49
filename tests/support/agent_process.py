# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The agent as its unit runs it, a process with a settings file; and what it left in the store."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import threading
import time
import typing as t
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from ironspan.backup.catalogue import Catalogue, catalogue
from ironspan.backup.chain import Point, choose
from ironspan.backup.crypto import FileKeys
from ironspan.backup.log_reader import read_log
from ironspan.backup.names import Names
from ironspan.backup.records import Revision
from ironspan.backup.store import Store
from ironspan.backup.stores import open_store
from ironspan.etcd import rpc_pb2 as rpc
from ironspan.etcd.client import EtcdClient
from ironspan.etcd.errors import Unreachable
from ironspan.lab.ports import free_port
from tests.support.backup_proof import proof, proof_settings

PREFIX = "ironspan_etcd_backup_"
PROGRAM = ("ironspan.backup.main",)
ROOT = Path(__file__).resolve().parents[2]


def quick(lease_seconds: int) -> tuple[str, ...]:
    """Return the program with shorter pauses and a lease of some seconds; a container wants 15."""
    return "tests.support.quick_agent", str(lease_seconds)


def wait(condition: Callable[[], object], what: str, seconds: float = 180) -> None:
    """Wait until something holds; fails, saying what, when it does not within what a busy machine takes."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"not within {seconds} s: {what}")
        time.sleep(0.05)


class AgentSite:
    """One site: a folder with keys and stores, and the agents of its hosts.

    Args:
        folder: for everything.
        endpoints: of etcd.
        stores: as the settings have them; a ``file`` store in the folder by default.
        environment: of the processes, beyond that of the tests.
        program: the module that is run, and its own arguments.
        more: further settings.
    """

    def __init__(
        self,
        folder: Path,
        endpoints: Sequence[str],
        stores: Sequence[dict[str, t.Any]] | None = None,
        environment: dict[str, str] | None = None,
        program: Sequence[str] = PROGRAM,
        **more: t.Any,
    ) -> None:
        self.folder, self.program = folder, program
        (folder / "keys").mkdir(parents=True)
        (folder / "keys" / "1.key").write_bytes(base64.b64encode(os.urandom(32)))
        self.settings: dict[str, t.Any] = {
            "site": "test",
            "etcd": {"endpoints": list(endpoints), "local": endpoints[0], "data_dir": "/var/lib/etcd/x"},
            "stores": list(stores or [{"kind": "file", "path": str(folder / "store")}]),
            "keys": {"kind": "file", "folder": str(folder / "keys")},
            "proof": proof_settings(folder / "signing"),
            **more,
        }
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}
        self.names = Names("test", proof())
        self.keys = FileKeys(folder / "keys")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ports: dict[str, int] = {}

    # -- processes ---------------------------------------------------------------------------------

    def command(self, host: str, *arguments: str) -> list[str]:
        """Return the command line of the program on a host, with its settings written."""
        if host not in self._ports:
            self._ports[host] = free_port()
        spool = {"path": str(self.folder / f"spool-{host}"), "max_bytes": 1 << 28}
        path = self.folder / f"{host}.json"
        mine = {"host": host, "spool": spool, "metrics": {"port": self._ports[host]}}
        path.write_text(json.dumps(self.settings | mine))
        return [sys.executable, "-m", *self.program, *arguments, "--settings", str(path)]

    def start(self, host: str) -> None:
        """Start the agent of a host."""
        with (self.folder / f"{host}.log").open("ab") as log:
            self.processes[host] = subprocess.Popen(
                self.command(host, "run"), stdout=log, stderr=log, env=self.environment
            )

    def stop(self, host: str) -> int:
        """Tell an agent to end and return its exit code."""
        process = self.processes.pop(host)
        process.terminate()
        return process.wait(120)

    def kill(self, host: str) -> None:
        """End an agent with no time for anything."""
        process = self.processes.pop(host)
        process.kill()
        process.wait()

    def run(self, *arguments: str, host: str = "by-hand") -> subprocess.CompletedProcess[str]:
        """Run another command of the program."""
        return subprocess.run(
            self.command(host, *arguments), capture_output=True, text=True, check=False, env=self.environment
        )

    def said(self, host: str) -> str:
        """Return what an agent logged."""
        return (self.folder / f"{host}.log").read_text()

    def metrics(self, host: str) -> dict[str, float]:
        """Return an agent's metrics by name without the prefix; empty while it does not answer."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self._ports[host]}/metrics", timeout=60
            ) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return {}
        pairs = (line.removeprefix(PREFIX).rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def metric(self, host: str, name: str) -> float:
        """Return one of an agent's metrics, 0 while it does not answer."""
        return self.metrics(host).get(name, 0.0)

    def beyond(self, host: str, name: str, value: float) -> bool:
        """Return whether one of an agent's metrics is above a value."""
        return self.metric(host, name) > value

    # -- what is in the store ----------------------------------------------------------------------

    def store(self, number: int = 0) -> Store:
        """Return a store of the settings."""
        return open_store(self.settings["stores"][number])

    def found(self, number: int = 0) -> Catalogue:
        """Return what a store holds."""
        return catalogue(self.store(number), self.names)

    def logged(
        self, number: int = 0, point: str = "latest", *, oldest: bool = False
    ) -> tuple[int, list[Revision]]:
        """Return the revision of the snapshot that leads to a point, and what the log has behind it.

        With ``oldest`` there is no other snapshot than the first one, and the log has to lead all the way.
        """
        found = self.found(number)
        if oldest:
            found = dataclasses.replace(found, snapshots=found.snapshots[:1])
        chain = choose(self.store(number), found, Point.parse(point), self.keys)
        links = [(link.segment.name, link.digest) for link in chain.links]
        records = read_log(self.store(number), self.keys, links, chain.snapshot.revision)
        return chain.snapshot.revision, [record for record in records if isinstance(record, Revision)]


@contextlib.contextmanager
def site(folder: Path, endpoints: Sequence[str], **more: t.Any) -> Iterator[AgentSite]:
    """Make a site, and end its agents; pytest shows what they logged when the test fails."""
    made = AgentSite(folder, endpoints, **more)
    try:
        yield made
    finally:
        for host in list(made.processes):
            made.kill(host)
        for path in sorted(folder.glob("*.log")):
            print(f"--- {path.name}\n{path.read_text()[-4000:]}")


class Writer:
    """Writes to etcd until its block ends, and knows the last revision that was acknowledged.

    A write that nobody answers, as in an election, may have been done: the last one is always answered.
    """

    def __init__(self, client: EtcdClient) -> None:
        self._client = client
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.revision = 0

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end.set()
        self._thread.join(180)

    def _run(self) -> None:
        number, answered = 0, True
        while not self._end.wait(0.002) or not answered:
            number += 1
            key = b"/registry/pods/ns/%d" % (number % 50)
            try:
                answer: rpc.PutResponse | rpc.DeleteRangeResponse = (
                    self._client.put(key, b"%d" % number) if number % 17 else self._client.delete(key)
                )
            except Unreachable:
                answered = False
            else:
                self.revision, answered = answer.header.revision or self.revision, True


def insist_on_a_whole_log(agents: AgentSite, client: EtcdClient, last: int, *, oldest: bool = False) -> None:
    """Insist that the log has every revision up to the last one, once and in order, and leads to etcd's keys.

    Args:
        agents: who wrote it.
        client: of etcd.
        last: the last revision that etcd acknowledged.
        oldest: the log has to lead there from the first snapshot on.
    """
    wait(lambda: max(agents.metric(host, "log_revision") for host in agents.processes) >= last, "the log")
    base, records = agents.logged(oldest=oldest)
    assert [record.revision for record in records] == list(range(base + 1, last + 1))
    now = {bytes(kv.key): bytes(kv.value) for page in client.pages() for kv in page.kvs}
    assert replayed(client, base, records) == now


def replayed(client: EtcdClient, base: int, records: Sequence[Revision]) -> dict[bytes, bytes]:
    """Return the keys and values that etcd had at a revision, changed by what the log says."""
    state = {bytes(kv.key): bytes(kv.value) for page in client.pages(revision=base) for kv in page.kvs}
    for record in records:
        for event in record.events:
            if event.put:
                state[event.key] = event.value
            else:
                state.pop(event.key, None)
    return state
