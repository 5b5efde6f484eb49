# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A number of simulated hosts as an inventory, and playbook runs against them with what they cost."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import typing as t

from tests.support.playbooks import recap_of

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
METER = pathlib.Path(__file__).with_name("meter.py")


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
    tasks_of_controller: int
    """Tasks that ran on localhost."""
    changed: int
    """Hosts with a change."""
    memory_kib: int
    """Largest process of the controller's side."""
    memory_all_kib: int
    """All processes of the controller's side together, what they share counted once; 0 unless asked for."""
    masters: int
    """The most connection masters of OpenSSH that were there at a time; 0 unless memory was asked for."""
    bytes_sent: int
    """To hosts, the modules themselves included; 0 unless it was asked for."""
    output: str

    def each(self, name: str) -> float:
        """Return a figure per host."""
        return float(getattr(self, name)) / self.hosts


class Hosts:
    """A number of simulated hosts; how they are reached is up to the classes that inherit from this one.

    Args:
        folder: an empty folder with a short path (it holds control sockets).
        count: how many hosts.
    """

    prefix: tuple[str, ...] = ()
    """What stands before the command that runs a playbook."""

    def __init__(self, folder: pathlib.Path, count: int) -> None:
        self.folder = folder
        self.count = count
        self.names = [f"sim-{index:04d}" for index in range(count)]

    def address(self, index: int) -> str:
        """Return the address of a host."""
        return f"127.1.{index // 250}.{index % 250 + 1}"

    def site_address(self, index: int) -> str:
        """Return the address at which other hosts would reach a host; nobody does here."""
        return self.address(index).replace("127.1.", "10.30.")

    def root(self, name: str) -> pathlib.Path:
        """Return the folder that a host's module takes for its root."""
        return self.folder / "roots" / name

    def connection(self) -> dict[str, t.Any]:
        """Return the variables that say how hosts are reached."""
        return {"ansible_user": "root", "ansible_ssh_executable": str(self.folder / "ssh")}

    def target_cpu(self) -> float:
        """Return the CPU seconds that the hosts have used."""
        return 0.0

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
        common = {**self.connection(), **variables}
        hosts = {
            name: {
                "ansible_host": self.address(index),
                "site_address": self.site_address(index),
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
        self,
        playbook: pathlib.Path,
        inventory: pathlib.Path,
        *options: str,
        keep_sent: bool = False,
        memory: bool = False,
        environment: dict[str, str] | None = None,
    ) -> Cost:
        """Run a playbook against the hosts and return what it cost; it may fail, see ``output``.

        Args:
            playbook: the playbook.
            inventory: the inventory.
            options: more options of ansible-playbook.
            keep_sent: count the bytes sent to hosts (which costs CPU of its own).
            memory: look at the memory of all processes again and again (CPU of its own, not counted).
            environment: more variables of the environment.
        """
        result, log, sent = self.folder / "cost.json", self.folder / "ssh.log", self.folder / "sent"
        sent.write_bytes(b"")
        log.write_text("")
        (self.folder / "cp").mkdir(exist_ok=True)
        variables = os.environ | {
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.folder / "cp"),
            "ANSIBLE_NOCOLOR": "1",
            "IRONSPAN_BENCH_SSH_LOG": str(log),
            "IRONSPAN_BENCH_SENT": str(sent) if keep_sent else "",
            "IRONSPAN_BENCH_MEMORY": "1" if memory else "",
            **(environment or {}),
        }
        # Compiled Python files are written and used, as in any installation.
        variables.pop("PYTHONDONTWRITEBYTECODE", None)
        program = str(pathlib.Path(sys.executable).with_name("ansible-playbook"))
        before = self.target_cpu()
        command = [*self.prefix, sys.executable, str(METER), str(result), program]
        done = subprocess.run(
            [*command, "-i", str(inventory), *options, str(playbook)],
            cwd=ROOT,
            env=variables,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        self.settle()
        cost = json.loads(result.read_text())
        recap = recap_of(done.stdout)
        return Cost(
            hosts=self.count,
            wall=cost["wall"],
            controller_cpu=cost["cpu"],
            target_cpu=self.target_cpu() - before,
            ssh_operations=len(log.read_text().splitlines()),
            tasks={name: row["ok"] + row["failed"] for name, row in recap.items() if name != "localhost"},
            tasks_of_controller=sum(recap.get("localhost", {}).get(key, 0) for key in ("ok", "failed")),
            changed=sum(1 for name, row in recap.items() if name != "localhost" and row["changed"]),
            memory_kib=cost["memory_kib"],
            memory_all_kib=cost["memory_all_kib"],
            masters=cost["masters"],
            bytes_sent=sent.stat().st_size,
            output=done.stdout,
        )

    def settle(self) -> None:
        """Wait until the hosts have nothing left to do for a run that has ended."""
