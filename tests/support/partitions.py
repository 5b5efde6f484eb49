# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Real etcd members in a network of their own, in which nftables drops what a test says; and disks that fail.

Clients reach a member through a socket in the file system: only what members tell each other gets lost.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.etcd_members import Members, serving

_CHAIN = "add chain inet faults arriving { type filter hook input priority 0; }"


def needed(*programs: str) -> None:
    """Skip the test without root or one of these programs, or fail it when IRONSPAN_REQUIRE_LAB is 1."""
    lacks = [name for name in programs if shutil.which(name) is None]
    if os.geteuid() != 0:
        lacks.append("root")
    if lacks and os.environ.get("IRONSPAN_REQUIRE_LAB") == "1":
        pytest.fail(f"this test needs {', '.join(lacks)}")
    if lacks:
        pytest.skip(f"this test needs {', '.join(lacks)}")


class PartitionedMembers(Members):
    """The members of one cluster, each with an address in a network namespace.

    Args:
        program: the etcd program.
        folder: for data folders, logs and sockets; a short path.
        holder: a process in the namespace.
    """

    def __init__(self, program: Path, folder: Path, holder: int) -> None:
        # Each speaks from its own address, so that a rule can tell them apart. Ten times etcd's usual pace.
        pace = ("--heartbeat-interval=20", "--election-timeout=200")
        flags = ["--feature-gates=SetMemberLocalAddr=true", *pace]
        super().__init__(program, folder, 3, flags)
        self.prefix = ("nsenter", f"--net=/proc/{holder}/ns/net", "--")
        self._inside("ip", "link", "set", "lo", "up")
        for name in self.names:
            self._inside("ip", "address", "add", f"{self.address(name)}/32", "dev", "lo")
        self._inside("nft", f"add table inet faults; {_CHAIN}")

    def address(self, name: str) -> str:
        """Return a member's address."""
        return f"198.18.0.{name[1:]}"

    def _url(self, name: str, port: int) -> str:
        if port == 2380:
            return f"http://{self.address(name)}:{port}"
        return f"unix://{self.folder}/{name}.socket"

    def advertised(self, name: str) -> str:
        """Return the client URL that a member tells others: etcd takes no socket's path for it."""
        return f"http://{self.address(name)}:2379"

    def _inside(self, *command: str) -> None:
        subprocess.run([*self.prefix, *command], check=True, capture_output=True)

    def drop(self, source: str, target: str, percent: int = 100) -> None:
        """Lose a share of the packets that one member sends to another; the other way is untouched."""
        share = f"numgen random mod 100 < {percent}" if percent < 100 else ""
        rule = f"ip saddr {self.address(source)} ip daddr {self.address(target)} {share} drop"
        self._inside("nft", f"add rule inet faults arriving {rule}")

    def isolate(self, name: str, percent: int = 100) -> None:
        """Lose packets between a member and all others, both ways."""
        for other in self.names:
            if other != name:
                self.drop(name, other, percent)
                self.drop(other, name, percent)

    def heal(self) -> None:
        """Lose nothing any more."""
        self._inside("nft", "flush chain inet faults arriving")


@contextlib.contextmanager
def partitioned(program: Path, folder: Path) -> Iterator[PartitionedMembers]:
    """Start three members in a network namespace, and end them and it."""
    needed("ip", "nft", "nsenter", "unshare")
    own = Path("/proc/self/ns/net").readlink()
    with subprocess.Popen(["unshare", "--net", "sleep", "infinity"]) as holder:
        try:
            while Path(f"/proc/{holder.pid}/ns/net").readlink() == own:
                assert holder.poll() is None
                time.sleep(0.01)
            members = PartitionedMembers(program, folder, holder.pid)
            with serving(members):
                yield members
        finally:
            holder.kill()


@contextlib.contextmanager
def injected(process: int, call: str, what: str) -> Iterator[None]:
    """Change what a system call of a running process does.

    Args:
        process: its id.
        call: such as ``fdatasync``.
        what: as strace's ``inject`` has it: ``error=EIO``, ``delay_enter=500000`` (microseconds),
            ``signal=KILL``.
    """
    needed("strace")
    command = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:{what}"]
    with subprocess.Popen([*command, "-p", str(process)], stderr=subprocess.PIPE) as tracer:
        try:
            _wait_for_tracer(process, tracer)
            yield
        finally:
            tracer.send_signal(signal.SIGINT)


def _wait_for_tracer(process: int, tracer: subprocess.Popen[bytes]) -> None:
    """Wait until every thread of a process is followed, or it has met its end already."""
    while not _followed(process, tracer.pid):
        if tracer.poll() is not None:
            assert tracer.stderr is not None
            said = tracer.stderr.read().decode()
            assert not said, said
            return
        time.sleep(0.02)


def _followed(process: int, tracer: int) -> bool:
    # Threads come and go meanwhile.
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return all(
            f"TracerPid:\t{tracer}\n" in (thread / "status").read_text()
            for thread in Path(f"/proc/{process}/task").iterdir()
        )
    return False
