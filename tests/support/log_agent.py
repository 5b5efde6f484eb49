# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The log's pipeline as a program of its own, to be killed and measured: see ``main`` for its arguments.

While a file ``down`` is in its folder the store refuses everything. It writes ``state.json`` when that is
not there, so that nothing of what is measured is for the measurement, and at its end (SIGTERM)
``stored.json``: when which revision was durable, on the machine's monotonic clock.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import typing as t
from collections.abc import Iterator, Sequence
from pathlib import Path

from ironspan.backup.crypto import FileKeys
from ironspan.backup.file_store import FileStore
from ironspan.backup.log.pipeline import Pipeline, Place
from ironspan.backup.log.spool import Spool
from ironspan.backup.log_reader import read_log
from ironspan.backup.records import Record
from ironspan.backup.takeover import segments_of, take_over
from ironspan.etcd.client import EtcdClient
from tests.support.backup_log import NAMES, file_keys
from tests.support.faulty_store import FaultyStore


def main() -> int:
    """Run: ``FOLDER AFTER ENDPOINT...``; AFTER is the revision to begin behind, where the log is empty."""
    folder, after, endpoints = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    down = folder / "down"
    store = FaultyStore(FileStore(folder / "store"), lambda what, name: "refused" if down.exists() else None)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    stored: list[tuple[int, float]] = []
    with EtcdClient(endpoints) as client:
        place = Place(store, file_keys(folder / "keys"), NAMES, 1)
        end = take_over(store.behind, NAMES, 1, "agent")
        cluster = client.header().cluster_id
        spool = Spool(folder / "spool", 256 << 20)
        pipeline = Pipeline(client, cluster, place, end, spool, after=max(after, end.revision))
        note = pipeline.position.stored

        def noting(revision: int) -> None:
            note(revision)
            stored.append((revision, time.monotonic()))

        t.cast("t.Any", pipeline.position).stored = noting
        pipeline.start()
        while not stop.wait(0.1) and not pipeline.failure:
            if not (folder / "state.json").exists():
                _write(folder / "state.json", _state(pipeline))
        _write(folder / "state.json", _state(pipeline))
        pipeline.stop()
    _write(folder / "stored.json", stored)
    return 1 if pipeline.failure else 0


def _state(pipeline: Pipeline) -> dict[str, t.Any]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "time": time.monotonic(),
        "received": pipeline.position.received_revision,
        "durable": pipeline.position.durable_revision,
        "rpo": pipeline.position.rpo(),
        "cpu": usage.ru_utime + usage.ru_stime,
        "peak_bytes": _peak_bytes(),
        "spooled_bytes": pipeline.outbox.spooled_bytes,
        "spooled_revision": pipeline.outbox.spooled_revision,
        "stalls": pipeline.reader.stalls,
        "written_bytes": pipeline.sender.written_bytes,
        "failure": str(pipeline.failure or ""),
    }


def _peak_bytes() -> int:
    """Return the most memory this process had; getrusage would count its parent's at the fork."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def _write(path: Path, value: object) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(value))
    temporary.replace(path)


class LogAgent:
    """The program above as a process.

    Args:
        folder: its own; keeps the store, the spool and the keys from run to run.
        endpoints: of etcd.
        after: the revision to begin behind.
        idle: run it as its unit does, when nothing else wants the processor. The unit has a share of its own
            besides; this process has not, and starves where others want all of it.
    """

    def __init__(self, folder: Path, endpoints: Sequence[str], after: int, *, idle: bool = False) -> None:
        self.folder = folder
        program = [sys.executable, "-m", "tests.support.log_agent"]
        scheduling = ["chrt", "--idle", "0"] if idle else []
        self._command = [*scheduling, *program, str(folder), str(after), *endpoints]
        self._process: subprocess.Popen[bytes] | None = None
        self.store = FileStore(folder / "store")
        self.after = after
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def running(self) -> bool:
        """Whether it was started and not ended."""
        return self._process is not None

    def start(self) -> None:
        """Begin a run and wait until it follows etcd."""
        root = Path(__file__).resolve().parent.parent.parent
        with (self.folder / "agent.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=root, env=os.environ | {"PYTHONPATH": str(root)}, stderr=log
            )
        self.wait(lambda state: bool(state))

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End the run; SIGKILL gives it no time."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(180)
            self._process = None

    def set_down(self, down: bool) -> None:
        """Take the store down or bring it back."""
        path = self.folder / "down"
        path.touch() if down else path.unlink()

    def state(self) -> dict[str, t.Any]:
        """Return what the agent says now, or what it said at its end."""
        path = self.folder / "state.json"
        if self._process is not None:
            path.unlink(missing_ok=True)
            end = time.monotonic() + 60
            while not path.exists() and self._process.poll() is None and time.monotonic() < end:
                time.sleep(0.02)
        with contextlib.suppress(OSError):
            return dict(json.loads(path.read_text()))
        return {}

    def wait(self, condition: t.Callable[[dict[str, t.Any]], bool], seconds: float = 180) -> dict[str, t.Any]:
        """Wait until the agent's state fulfils something; fails with its log when it does not."""
        end = time.monotonic() + seconds
        while not condition(state := self.state()):
            running = self._process is not None and self._process.poll() is None
            log = (self.folder / "agent.log").read_text()[-3000:]
            assert running and time.monotonic() < end, f"{state}\n{log}"
            time.sleep(0.02)
        return state

    def stored(self) -> list[tuple[int, float]]:
        """Return when which revision was durable, of the last run that was ended in peace."""
        return [(revision, at) for revision, at in json.loads((self.folder / "stored.json").read_text())]

    @property
    def keys(self) -> FileKeys:
        """What the log is encrypted with."""
        return file_keys(self.folder / "keys")

    def log(self) -> Iterator[Record]:
        """Yield what is in the store, verified; the agent must not run."""
        take_over(self.store, NAMES, 1, "reader")
        names = [(item.name, "") for item, _ in segments_of(self.store, NAMES, 1)]
        yield from read_log(self.store, self.keys, names, self.after)


@contextlib.contextmanager
def log_agent(folder: Path, endpoints: Sequence[str], after: int) -> Iterator[LogAgent]:
    """Start an agent and end it."""
    agent = LogAgent(folder, endpoints, after)
    try:
        agent.start()
        yield agent
    finally:
        agent.end(signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
