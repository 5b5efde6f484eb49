# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Simulated hosts: real SSH to many loopback addresses, each host a folder that is its root to the module.

One OpenSSH server listens inside a network namespace of its own, where all of 127.0.0.0/8 and nothing else is
reachable; ansible-playbook runs inside the same namespace. Controller and targets are metered apart.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import types
import typing as t

from tests.support.playbooks import recap_of

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
METER = pathlib.Path(__file__).with_name("meter.py")
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
[ -z "$IRONSPAN_BENCH_SENT" ] && exec ssh "$@"
tee -a "$IRONSPAN_BENCH_SENT" | ssh "$@"
"""


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one playbook run cost."""

    hosts: int
    wall: float
    """Seconds from start to end."""
    controller_cpu: float
    """CPU seconds of ansible-playbook and everything it started, its ssh clients included."""
    target_cpu: float
    """CPU seconds of the SSH server and everything it started: the hosts' side."""
    ssh_operations: int
    tasks: dict[str, int]
    """Host -> tasks that ran there."""
    changed: int
    """Hosts with a change."""
    memory_kib: int
    """Largest process of the controller's side."""
    bytes_sent: int
    """To hosts, the modules themselves included; 0 unless it was asked for."""
    output: str

    def each(self, name: str) -> float:
        """Return a figure per host."""
        return float(getattr(self, name)) / self.hosts


class Fleet:
    """A number of simulated hosts; a context manager.

    Args:
        folder: an empty folder with a short path (it holds control sockets).
        count: how many hosts.
    """

    def __init__(self, folder: pathlib.Path, count: int) -> None:
        self.folder = folder
        self.count = count
        self.namespace = f"isbench{os.getpid()}"
        self.names = [f"sim-{index:04d}" for index in range(count)]
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
        self._wait_for_server()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        for service in reversed(self._services):
            service.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                service.wait(10)
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

    def address(self, index: int) -> str:
        """Return the loopback address of a host."""
        return f"127.1.{index // 250}.{index % 250 + 1}"

    def root(self, name: str) -> pathlib.Path:
        """Return the folder that a host's module takes for its root."""
        return self.folder / "roots" / name

    def inventory(
        self,
        variables: dict[str, t.Any],
        groups: dict[str, list[str]],
        others: dict[str, dict[str, dict[str, t.Any]]],
    ) -> pathlib.Path:
        """Write an inventory of the hosts.

        Args:
            variables: variables of every host.
            groups: group -> simulated hosts.
            others: group -> hosts with their variables that are part of the site but never contacted.

        Returns:
            The file.
        """
        common = {
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(self.folder / "key"),
            "ansible_ssh_executable": str(self.folder / "ssh"),
            "ansible_ssh_common_args": f"-o UserKnownHostsFile={self.folder}/known_hosts",
            **variables,
        }
        hosts = {
            name: {
                "ansible_host": self.address(index),
                # what other hosts would use; nobody does here
                "site_address": self.address(index).replace("127.1.", "10.30."),
                "user_root": str(self.root(name)),
            }
            for index, name in enumerate(self.names)
        }
        members: dict[str, t.Any] = {
            group: {"hosts": dict.fromkeys(names)} for group, names in groups.items()
        }
        members |= {group: {"hosts": dict(named)} for group, named in others.items()}
        path = self.folder / "hosts.yml"
        text = json.dumps({"all": {"vars": common, "hosts": hosts, "children": members}}, indent=1)
        path.write_text(text)  # JSON is YAML, and read much faster
        return path

    def play(
        self, playbook: pathlib.Path, inventory: pathlib.Path, *options: str, keep_sent: bool = False
    ) -> Cost:
        """Run a playbook against the hosts and return what it cost; it may fail, see ``output``.

        Args:
            playbook: the playbook.
            inventory: the inventory.
            options: more options of ansible-playbook.
            keep_sent: count the bytes sent to hosts (which costs CPU of its own).
        """
        result, log, sent = self.folder / "cost.json", self.folder / "ssh.log", self.folder / "sent"
        sent.write_bytes(b"")
        log.write_text("")
        (self.folder / "cp").mkdir(exist_ok=True)
        environment = os.environ | {
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.folder / "cp"),
            "ANSIBLE_NOCOLOR": "1",
            "IRONSPAN_BENCH_SSH_LOG": str(log),
            "IRONSPAN_BENCH_SENT": str(sent) if keep_sent else "",
        }
        # Compiled Python files are written and used, as in any installation.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        program = str(pathlib.Path(sys.executable).with_name("ansible-playbook"))
        before = self.target_cpu()
        command = ["ip", "netns", "exec", self.namespace, sys.executable, str(METER), str(result), program]
        done = subprocess.run(
            [*command, "-i", str(inventory), *options, str(playbook)],
            cwd=ROOT,
            env=environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        time.sleep(0.5)  # sessions that have just ended are waited for by the listener
        cost = json.loads(result.read_text())
        recap = recap_of(done.stdout)
        return Cost(
            hosts=self.count,
            wall=cost["wall"],
            controller_cpu=cost["cpu"],
            target_cpu=self.target_cpu() - before,
            ssh_operations=len(log.read_text().splitlines()),
            tasks={name: row["ok"] + row["failed"] for name, row in recap.items() if name != "localhost"},
            changed=sum(1 for name, row in recap.items() if name != "localhost" and row["changed"]),
            memory_kib=cost["memory_kib"],
            bytes_sent=sent.stat().st_size,
            output=done.stdout,
        )

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
        for _ in range(50):
            if subprocess.run(command, check=False, capture_output=True).returncode == 0:
                return
            time.sleep(0.1)
        raise RuntimeError("the SSH server does not answer: " + " ".join(command))
