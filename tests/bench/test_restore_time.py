# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How long a restore takes: from the command, with the store lost, to an API server that serves.

Backups are in the lab's blob store, and the agent, the controller and all hosts share the machine. So the
budgets hold where nothing else runs, and are asserted only when figures are recorded:
IRONSPAN_BENCH_RECORD=docs/benchmarks.md pytest -m long tests/bench/test_restore_time.py
The large store takes about 25 GiB of disk at its peak: IRONSPAN_BENCH_MIB=256 makes it smaller.
"""

from __future__ import annotations

import collections.abc
import json
import os
import ssl
import textwrap
import threading
import time
import typing as t
import urllib.error
import urllib.request

import pytest

from tests.bench.table import Table
from tests.integration.test_etcd_restore import CONSENT, MEMBERS, Restored, restored
from tests.integration.test_etcd_restore_backup import PROGRAM, revision, wait_for_the_log
from tests.support.playbooks import play

pytestmark = [pytest.mark.lab, pytest.mark.long]
SECTION = "Restore of a lost etcd"
TINY_S, GIB_S = 10, 60
MEBIBYTES = int(os.environ.get("IRONSPAN_BENCH_MIB", "1024"))
PREFIX = "/ironspan-bench/"
"""Outside of what API servers read: it is etcd's database that is large, not their memory."""
FILL = textwrap.dedent(
    """\
    import random, subprocess, sys
    chance = random.Random(1)
    words = [bytes(chance.randrange(256) for _ in range(6)).hex() for _ in range(4096)]
    for number in range(int(sys.argv[1])):
        puts = "".join(
            f'put {sys.argv[2]}{number:05d}/{index:03d} "{" ".join(chance.choices(words, k=800))}"\\n'
            for index in range(100)
        )
        text = f"\\n{puts}\\n\\n".encode()
        subprocess.run(["etcdctl", "txn"], input=text, check=True, stdout=subprocess.DEVNULL)
    """
)
"""A transaction is a MiB in a hundred values of 10 KiB, which compress three-fold, as objects do."""


@pytest.fixture(scope="module")
def site() -> collections.abc.Iterator[Restored]:
    with restored("brestore", etcd_backup=True) as made:
        yield made


class Watch:
    """Asks the API servers again and again; notes when one of them was first ready after it began.

    Args:
        addresses: of the control planes.
    """

    def __init__(self, addresses: list[str]) -> None:
        self._urls = [f"https://{address}:6443/readyz" for address in addresses]
        self._unchecked = ssl.create_default_context()
        self._unchecked.check_hostname = False
        self._unchecked.verify_mode = ssl.CERT_NONE
        self._first = threading.Lock()
        self.seconds: float | None = None

    def ready(self) -> bool:
        """Tell whether one of them is ready."""
        return any(self._is_ready(url) for url in self._urls)

    def start(self) -> None:
        """Begin.

        Each is asked by itself: one that starts takes connections long before it answers.
        """
        self._began = time.monotonic()
        for url in self._urls:
            threading.Thread(target=self._run, args=(url,), daemon=True).start()

    def _run(self, url: str) -> None:
        while not self._is_ready(url):
            time.sleep(0.1)
        with self._first:
            if self.seconds is None:
                self.seconds = time.monotonic() - self._began

    def _is_ready(self, url: str) -> bool:
        try:
            with urllib.request.urlopen(url, timeout=2, context=self._unchecked) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False


def seconds_to_an_api_server(site: Restored) -> tuple[float, str]:
    """Lose the store, restore it, and return how long it took, and what the command said."""
    last = revision(site)
    wait_for_the_log(site, last)
    watch = Watch([site.address(host) for host in MEMBERS[:2]])
    site.lose(*MEMBERS)
    while watch.ready():
        time.sleep(0.2)
    watch.start()
    done = site.restore(*CONSENT)
    assert done.returncode == 0, done.stdout
    assert watch.seconds is not None
    assert revision(site) > last
    return watch.seconds, done.stdout


def fill(site: Restored, mebibytes: int) -> None:
    """Write so much, and let a snapshot of it be taken and proven."""
    site.put("az-1", "/root/fill.py", FILL.encode())
    script = f"python3 /root/fill.py {mebibytes} {PREFIX} > /root/fill.log 2>&1"
    site.on("az-1", f"set -a; . /etc/etcd/etcdctl.env; nohup {script} < /dev/null &")
    wait(lambda: site.on("az-1", "pgrep -f /root/fill.p[y] || true") == "", 1800)
    assert site.on("az-1", "cat /root/fill.log") == ""
    last = revision(site)
    for seconds in (10, 3600):
        options = ("-e", f"etcd_backup_snapshot_seconds={seconds}")
        assert play("etcd_backup", site.inventory, site.folder, *options).status == 0
        wait(lambda: newest(site)["revision"] >= last, 600)
    wait(lambda: newest(site)["verified"], 600)


def newest(site: Restored) -> dict[str, t.Any]:
    """Return the newest snapshot that the backup has."""
    stores = json.loads(site.on("az-1", f"{PROGRAM} list --json 2>/dev/null"))["stores"]
    return dict(max(stores[0]["snapshots"], key=lambda snapshot: int(snapshot["revision"])))


def wait(true: collections.abc.Callable[[], object], seconds: float) -> None:
    """Wait until something is the case."""
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(2)


def note(table: Table, what: str, seconds: float, budget: float, more: str) -> None:
    """Note a time, with its budget where the machine is there for the bench alone."""
    if "IRONSPAN_BENCH_RECORD" in os.environ:
        table.add(SECTION, what, seconds, budget, "s", more)
    else:
        table.note(SECTION, what, f"{seconds:.1f} s", f"load {os.getloadavg()[0]:.0f}; {more}")


def test_a_tiny_store(site: Restored, table: Table) -> None:
    seconds, said = seconds_to_an_api_server(site)
    print(said)
    note(table, "a tiny one: command to a ready API server", seconds, TINY_S, "3 members, 2 control planes")
    table.check()


def test_a_large_store(site: Restored, table: Table) -> None:
    fill(site, MEBIBYTES)
    size = newest(site)["size"]
    seconds, said = seconds_to_an_api_server(site)
    print(said)
    more = f"snapshot of {size >> 20} MiB, download and proof included"
    what = f"{MEBIBYTES} MiB of values: command to a ready API server"
    note(table, what, seconds, max(TINY_S, GIB_S * MEBIBYTES / 1024), more)
    table.check()
