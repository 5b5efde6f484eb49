# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What it takes to rebuild a database from its backups, and to prove that it can be."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import subprocess
import sys
import threading
import time
import typing as t

import pytest

from ironspan.backup.log_reader import read_log
from ironspan.backup.rebuild.fetch import fetch
from ironspan.backup.rebuild.programs import Programs
from ironspan.backup.rebuild.replay import replay
from ironspan.backup.rebuild.scratch import Scratch
from ironspan.backup.records import Event, Revision
from ironspan.etcd import rpc_pb2 as rpc
from ironspan.etcd.client import EtcdClient
from tests.bench.table import Table
from tests.support.backup_proof import proof_settings
from tests.support.backup_site import BackupSite
from tests.support.etcd_members import find_etcd, running

MIB = 1 << 20
OBJECT_BYTES = 4096
LOG_REVISIONS, LOG_BYTES = 50_000, 1024
SECONDS_PER_GIB = 60.0
"""For a drill's verdict, and for a rebuild: the database has to serve within that time."""
LEAST_REVISIONS_PER_SECOND = 5000.0
PEAK_MIB = 200.0


def values(size: int) -> t.Callable[[], bytes]:
    """Return a maker of values that compress about as objects do: three-fold."""
    chance = random.Random(1)
    words = [chance.randbytes(6).hex().encode() for _ in range(4096)]

    def value() -> bytes:
        return b" ".join(chance.choices(words, k=size // 13))

    return value


def fill(client: EtcdClient, size: int) -> None:
    """Write objects of OBJECT_BYTES until the database has ``size`` bytes."""
    value = values(OBJECT_BYTES)
    for number in range(0, size // (OBJECT_BYTES + 200), 100):
        puts = [
            rpc.PutRequest(key=b"/registry/pods/default/%08d" % (number + index), value=value())
            for index in range(100)
        ]
        client.txn(rpc.TxnRequest(success=[rpc.RequestOp(request_put=put) for put in puts]))


def write_log(site: BackupSite, after: int) -> None:
    """Write a log of LOG_REVISIONS writes, 200 an append as at 1,000 writes a second."""
    value = values(LOG_BYTES)
    numbers = range(after + 1, after + 1 + LOG_REVISIONS)
    batches = [
        [
            Revision(number, number, (Event(True, b"/registry/leases/%09d" % number, value(), number, 1),))
            for number in numbers[begin : begin + 200]
        ]
        for begin in range(0, LOG_REVISIONS, 200)
    ]
    site.log(after, *batches)


class Cost(t.NamedTuple):
    """What one command took: seconds, CPU seconds of all its processes, MiB of its own."""

    seconds: float
    cpu: float
    peak: float
    answer: dict[str, t.Any]


def command(settings: pathlib.Path, *arguments: str) -> Cost:
    """Run the program of the etcd hosts."""
    begun, before = time.monotonic(), os.times()
    process = subprocess.Popen(
        [sys.executable, "-m", "ironspan.backup.main", *arguments, f"--settings={settings}", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    peak = 0

    def watch() -> None:
        nonlocal peak
        with contextlib.suppress(OSError, StopIteration, ProcessLookupError):
            while True:
                lines = pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines()
                peak = int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
                time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    out, errors = process.communicate()
    watcher.join()
    seconds, after = time.monotonic() - begun, os.times()
    assert process.returncode == 0, errors.decode()[-3000:]
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(seconds, cpu, peak / 1024, json.loads(out))


def settings_of(site: BackupSite) -> pathlib.Path:
    """Write the program's settings."""
    path = site.folder / "settings.json"
    etcd = {
        "endpoints": site.client.endpoints,
        "local": site.client.endpoints[0],
        "ca": "",
        "certificate": "",
    }
    data = {
        "site": "test",
        "host": "drill-1",
        "etcd": {**etcd, "key": "", "data_dir": "/nowhere"},
        "stores": [{"kind": "file", "path": str(site.folder / "store"), "prefix": ""}],
        "keys": {"kind": "file", "folder": str(site.folder / "keys")},
        "proof": proof_settings(site.folder / "signing"),
        "spool": {"path": str(site.folder / "spool")},
        "drill": {"memory_max": 2 << 30, "cpu_quota_percent": 100},
    }
    path.write_text(json.dumps(data))
    return path


@pytest.mark.parametrize(
    "size", [128 * MIB, pytest.param(1024 * MIB, marks=pytest.mark.long)], ids=["128 MiB", "1 GiB"]
)
def test_a_restore_and_its_proof_take_less_than_a_minute_a_gib(
    table: Table, tmp_path: pathlib.Path, size: int
) -> None:
    found = find_etcd(tmp_path / "bin", ["etcd", "etcdutl"])
    programs = Programs(found["etcd"], found["etcdutl"])
    section = f"Backups of a database of {size // MIB} MiB"
    flags = ["--quota-backend-bytes=8589934592"]
    with (
        running(programs.etcd, tmp_path / "source", 1, flags) as members,
        EtcdClient(members.endpoints, timeout=60) as client,
    ):
        fill(client, size)
        site = BackupSite(tmp_path / "site", client, programs)
        begun = time.monotonic()
        taken = site.snapshot()
        table.note(section, "snapshot", f"{time.monotonic() - begun:.1f} s", f"{taken.size // MIB} MiB")
        settings = settings_of(site)
    write_log(site, taken.revision)
    stored = sum(segment.item.size for segment in site.found().segments)
    gib = (taken.size + LOG_REVISIONS * LOG_BYTES) / (1 << 30)
    both = f"--programs={found['etcd'].parent}"
    drill = command(settings, "drill", both)
    assert drill.answer["verified"], drill.answer
    assert drill.answer["revision"] == taken.revision + LOG_REVISIONS
    out = tmp_path / "out"
    rebuild = command(settings, "rebuild", f"--output={out}", both)
    begun = time.monotonic()
    with Scratch(tmp_path / "serving", programs) as scratch:
        scratch.restore(out / "restored.db")
        client = scratch.start()
        assert client.range(b"/registry/", b"/registry0", count_only=True).count == rebuild.answer["objects"]
        serving = time.monotonic() - begun
    note = f"snapshot and {LOG_REVISIONS} revisions of log, {stored // MIB} MiB of it stored"
    table.add(section, "drill: verdict, per GiB", drill.seconds / gib, SECONDS_PER_GIB, "s", note)
    table.note(section, "drill: CPU, per GiB", f"{drill.cpu / gib:.1f} s", "download, replay, hash, etcd")
    table.add(section, "drill: memory of the program", drill.peak, PEAK_MIB, "MiB", "without etcd")
    total = (rebuild.seconds + serving) / gib
    table.add(section, "rebuild and a serving etcd, per GiB", total, SECONDS_PER_GIB, "s", "check included")
    table.note(section, "rebuild", f"{rebuild.seconds:.2f} s")
    table.check()


def test_the_log_is_replayed_fast(table: Table, tmp_path: pathlib.Path) -> None:
    found = find_etcd(tmp_path / "bin", ["etcd", "etcdutl"])
    programs = Programs(found["etcd"], found["etcdutl"])
    with (
        running(programs.etcd, tmp_path / "source") as members,
        EtcdClient(members.endpoints) as client,
    ):
        client.put(b"/registry/pods/a", b"b")
        site = BackupSite(tmp_path / "site", client, programs)
        taken = site.snapshot()
    write_log(site, taken.revision)
    stored, database = site.found(), tmp_path / "database"
    fetch(site.store, site.keys, stored.snapshots[0].data.name, taken, database)
    segments = [(segment.name, "") for segment in stored.segments]
    begun = time.process_time()
    done = replay(database, read_log(site.store, site.keys, segments, taken.revision))
    assert done.revisions == LOG_REVISIONS
    each = (time.process_time() - begun) / LOG_REVISIONS
    table.add(
        "Replay of the log", "CPU of a revision of 1 KiB", each * 1e6, 1e6 / LEAST_REVISIONS_PER_SECOND, "µs",
        f"{1 / each:.0f} revisions a second of one core, decryption included",
    )  # fmt: skip
    table.check()
