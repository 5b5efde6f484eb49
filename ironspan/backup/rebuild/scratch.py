# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""An etcd for a look at a database: alone, reached only through a socket in its own folder, with limits."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import json
import logging
import os
import shutil
import signal
import subprocess
import time
import typing as t
from collections.abc import Iterator, Sequence
from pathlib import Path

from ironspan.backup.rebuild.programs import Programs
from ironspan.etcd.client import EtcdClient
from ironspan.etcd.errors import Unreachable
from ironspan.program.errors import ProgramError

START_SECONDS = 120.0
"""etcd reads its whole database when it starts: 1 GiB takes 5 s on two cores, slow disks a minute."""
RESTORE_SECONDS = 600.0
_SOCKET, _PEER = "client:1", "peer:1"
"""etcd wants host:port in every URL; for a socket that is its file's name, below the working folder."""
_GIB = 1 << 30
LIMITED = "IRONSPAN_LIMITED"
"""Set where the unit that this runs in has the limits."""
_SCOPE = ("systemd-run", "--scope", "--quiet", "--collect")
LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """What the scratch etcd may use: bytes of memory and percent of one core; 0 is no limit."""

    memory_max: int = 0
    cpu_quota_percent: int = 0


NO_LIMITS = Limits()


class ScratchError(ProgramError):
    """etcd or etcdutl does not do with a database what it should."""


class Scratch:
    """A folder with one etcd in it, as a context manager; both are gone afterwards.

    A process that was left behind by a run that was killed is ended by the next one that uses the folder, and
    etcd itself is ended by the kernel when its starter dies (where setpriv is installed).

    Args:
        folder: made when it is missing; nobody else can look into it.
        programs: etcd and etcdutl.
        limits: set as limits of a control group where systemd runs, and in any case told to Go's runtime.

    Raises:
        ProgramError: another run uses the folder.
    """

    def __init__(self, folder: Path, programs: Programs, limits: Limits = NO_LIMITS) -> None:
        self.folder = folder
        self.data = folder / "data"
        self._programs = programs
        self._limits = limits
        self._note = folder / "process.json"
        self._process: subprocess.Popen[bytes] | None = None
        self._closing = contextlib.ExitStack()

    def __enter__(self) -> t.Self:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        self._handle = self._closing.enter_context(locked(self.folder))
        self._remove()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
            self._remove()
        finally:
            self._closing.close()

    @property
    def endpoint(self) -> str:
        """The URL of etcd's socket, short whatever the folder's name is: socket names end at 107 bytes."""
        return f"unix:///proc/{os.getpid()}/fd/{self._handle}/{_SOCKET}"

    def restore(self, database: Path) -> None:
        """Make the data folder from a sealed database, as a cluster of its own.

        Raises:
            ScratchError: etcdutl refuses the database; the message has its reason.
        """
        token = os.urandom(8).hex()
        done = self._run(
            [
                *(str(self._programs.etcdutl), "snapshot", "restore", str(database.absolute())),
                *("--name=scratch", f"--data-dir={self.data.absolute()}", f"--initial-cluster-token={token}"),
                f"--initial-cluster=scratch=unix://{_PEER}",
                f"--initial-advertise-peer-urls=unix://{_PEER}",
            ]
        )
        if done:
            raise ScratchError(f"etcdutl does not restore {database}: {done}")

    def start(self, *arguments: str) -> EtcdClient:
        """Start etcd on the restored data and wait until it answers; the client closes with the scratch.

        Raises:
            ScratchError: it ends, or does not answer within START_SECONDS.
        """
        urls = {
            "listen-client-urls": _SOCKET, "advertise-client-urls": _SOCKET,
            "listen-peer-urls": _PEER, "initial-advertise-peer-urls": _PEER,
        }  # fmt: skip
        flags = [f"--{name}=unix://{path}" for name, path in urls.items()]
        size = (self.data / "member" / "snap" / "db").stat().st_size
        log = self.folder / "etcd.log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                self.limited(
                    [
                        *(str(self._programs.etcd), "--name=scratch", f"--data-dir={self.data.absolute()}"),
                        f"--initial-cluster=scratch=unix://{_PEER}",
                        *flags,
                        # What is in there is a copy: speed counts, durability does not.
                        *("--unsafe-no-fsync", "--log-level=warn", "--auto-compaction-retention=0"),
                        # Nobody else could be the leader: no second of waiting for one.
                        *("--heartbeat-interval=10", "--election-timeout=100"),
                        f"--quota-backend-bytes={max(8 * _GIB, 2 * size)}",
                        *arguments,
                    ]
                ),
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._write_note(self._process.pid)
        client = self._closing.enter_context(EtcdClient([self.endpoint], timeout=60))
        self._wait(client, log)
        return client

    def stop(self) -> None:
        """End etcd; its data stays."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def limited(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs another one with the limits, and ends it with this process."""
        return [*in_scope(self._limits), *end_with_starter(), "nice", "-n", "10", *command]

    # -- processes ---------------------------------------------------------------------------------

    def _wait(self, client: EtcdClient, log: Path) -> None:
        end = time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(Unreachable):
                if client.status(self.endpoint, timeout=2).leader:
                    return
            assert self._process is not None
            ended = self._process.poll()
            if ended is not None or time.monotonic() > end:
                what = (
                    f"ends with {ended}" if ended is not None else f"does not answer in {START_SECONDS:.0f} s"
                )
                raise ScratchError(f"The scratch etcd {what}: {tail(log)}")
            time.sleep(0.05)

    def _run(self, command: Sequence[str]) -> str:
        """Run a program to its end; returns its last words when it fails."""
        log = self.folder / "etcdutl.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                self.limited(command),
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._write_note(process.pid)
        try:
            failed = process.wait(RESTORE_SECONDS) != 0
        except BaseException:
            process.kill()
            process.wait()
            raise
        return tail(log) if failed else ""

    def _environment(self) -> dict[str, str]:
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self.folder)}
        if self._limits.memory_max:
            environment["GOMEMLIMIT"] = str(self._limits.memory_max * 9 // 10)
        if self._limits.cpu_quota_percent:
            environment["GOMAXPROCS"] = str(max(1, self._limits.cpu_quota_percent // 100))
        return environment

    # -- what a killed run left --------------------------------------------------------------------

    def _write_note(self, pid: int) -> None:
        self._note.write_text(json.dumps({"pid": pid, "started": _started(pid)}))

    def _remove(self) -> None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            note = json.loads(self._note.read_bytes())
            # A number is given again; together with the start it means one process only.
            while note["started"] and _started(note["pid"]) == note["started"]:
                os.kill(note["pid"], signal.SIGKILL)
                time.sleep(0.02)
        for path in self.folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Hold a folder for this process; yields its open descriptor.

    Raises:
        ProgramError: another run holds it.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ProgramError(
                f"Another run works in {folder}.", "Wait until it has ended, or give another folder."
            ) from None
        yield handle
    finally:
        os.close(handle)


def in_scope(limits: Limits) -> list[str]:
    """Return the command that runs what follows it in a control group with limits, if systemd makes one."""
    if limits == NO_LIMITS or not _makes_scopes():
        return []
    properties = []
    if limits.memory_max:
        properties += [f"--property=MemoryMax={limits.memory_max}", "--property=MemorySwapMax=0"]
    if limits.cpu_quota_percent:
        properties.append(f"--property=CPUQuota={limits.cpu_quota_percent}%")
    return [*_SCOPE, *properties, "--"]


@functools.cache
def _makes_scopes() -> bool:
    """Say whether systemd runs here and gives this process control groups."""
    if LIMITED in os.environ or os.geteuid():
        return False
    if not Path("/run/systemd/system").is_dir() or not shutil.which(_SCOPE[0]):
        return False
    done = subprocess.run([*_SCOPE, "--", "true"], capture_output=True, text=True, timeout=60)
    if done.returncode:
        LOG.warning("The scratch etcd runs without limits of its own: %s", done.stderr.strip())
    return done.returncode == 0


def end_with_starter() -> list[str]:
    """Return the command that has what follows it killed when the thread that starts it ends."""
    return ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []


def _started(pid: int) -> str:
    """Return when a process began, in clock ticks since boot, with the boot; empty when there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else f"{boot}/{fields[19]}"


def tail(log: Path) -> str:
    """Return the last words of a program's log."""
    text = log.read_text(errors="replace").strip()
    return " ".join(text[-1000:].split()) or "it said nothing."
