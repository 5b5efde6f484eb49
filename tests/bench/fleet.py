# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Simulated hosts: real SSH to many loopback addresses, each host a folder that is its root to the module.

One OpenSSH server listens inside a network namespace of its own, where all of 127.0.0.0/8 and nothing else is
reachable; ansible-playbook runs inside the same namespace. Controller and targets are metered apart.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import time
import types
import typing as t

from tests.bench.hosts import Hosts
from tests.support.waiting import until

TICKS = os.sysconf("SC_CLK_TCK")

SSHD_CONFIG = """\
HostKey {folder}/host_key
PidFile none
AuthorizedKeysFile {folder}/key.pub
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UsePAM no
UseDNS no
PrintMotd no
MaxStartups 1000:30:2000
MaxSessions 100
LogLevel ERROR
"""

# Ansible starts this in the place of ssh: one line in the file for every SSH operation.
COUNTER = """\
#!/bin/sh
echo >> "$IRONSPAN_BENCH_SSH_LOG"
[ -n "$IRONSPAN_BENCH_ANSWERS" ] && { ssh "$@" | tee "$IRONSPAN_BENCH_ANSWERS/$(date +%s.%N)"; exit; }
[ -z "$IRONSPAN_BENCH_SENT" ] && exec ssh "$@"
tee -a "$IRONSPAN_BENCH_SENT" | ssh "$@"
"""


class Fleet(Hosts):
    """A number of simulated hosts behind a real SSH server; a context manager.

    Args:
        folder: an empty folder with a short path (it holds control sockets).
        count: how many hosts.
    """

    def __init__(self, folder: pathlib.Path, count: int) -> None:
        super().__init__(folder, count)
        self.namespace = f"isbench{os.getpid()}"
        self.prefix = ("ip", "netns", "exec", self.namespace)
        self._server: subprocess.Popen[bytes] | None = None
        self._services: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> t.Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("key", "host_key"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)], check=True
            )
        (self.folder / "sshd_config").write_text(SSHD_CONFIG.format(folder=self.folder))
        public = " ".join((self.folder / "host_key.pub").read_text().split()[:2])
        (self.folder / "known_hosts").write_text(f"127.* {public}\n")
        counter = self.folder / "ssh"
        counter.write_text(COUNTER)
        counter.chmod(0o755)
        subprocess.run(["ip", "netns", "add", self.namespace], check=True)
        self._inside("ip", "link", "set", "lo", "up")
        pathlib.Path("/run/sshd").mkdir(exist_ok=True)
        sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin") or "sshd"
        # -D: stay in the foreground; the listener's own waited-for children are the targets' CPU.
        self._server = self.serve(sshd, "-D", "-e", "-f", str(self.folder / "sshd_config"))
        try:
            self._wait_for_server()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        for service in reversed(self._services):
            service.terminate()
            try:
                service.wait(10)
            except subprocess.TimeoutExpired:
                # What goes on would be measured with whatever comes next.
                service.kill()
                service.wait()
        subprocess.run(["ip", "netns", "delete", self.namespace], check=False)

    def serve(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a program inside the namespace; it is ended with the fleet."""
        log = (self.folder / f"service-{len(self._services)}.log").open("wb")
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.namespace, *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        self._services.append(process)
        return process

    def connection(self) -> dict[str, t.Any]:
        """Return the variables that say how hosts are reached."""
        return {
            **super().connection(),
            "ansible_ssh_private_key_file": str(self.folder / "key"),
            "ansible_ssh_common_args": f"-o UserKnownHostsFile={self.folder}/known_hosts",
        }

    def settle(self) -> None:
        """Wait for sessions that have just ended; the listener waits for them, too."""
        time.sleep(0.5)

    def target_cpu(self) -> float:
        """Return the CPU seconds that the SSH server and its ended children have used."""
        assert self._server is not None
        fields = pathlib.Path(f"/proc/{self._server.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(int(fields[index]) for index in (11, 12, 13, 14)) / TICKS

    def _inside(self, *command: str) -> None:
        subprocess.run(["ip", "netns", "exec", self.namespace, *command], check=True)

    def _wait_for_server(self) -> None:
        options = ["-i", str(self.folder / "key"), "-o", f"UserKnownHostsFile={self.folder}/known_hosts"]
        command = ["ip", "netns", "exec", self.namespace, "ssh", *options, "root@127.1.0.1", "true"]
        until(lambda: subprocess.run(command, check=False, capture_output=True).returncode == 0, pause=0.1)
