# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Runs playbooks in tests and counts what they do: tasks and changes a host, SSH operations a host."""

from __future__ import annotations

import collections
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BIN = pathlib.Path(sys.executable).parent

# Ansible starts this in the place of ssh: one line in a file for every SSH operation.
COUNTER = """\
#!/bin/sh
line=$(printf '%s ' "$@" | tr '\\n' ' ')
printf '%s\\n' "$line" >> "$IRONSPAN_TEST_SSH_LOG"
exec ssh "$@"
"""


@dataclasses.dataclass(frozen=True)
class Played:
    """How a playbook run ended."""

    status: int
    output: str
    seconds: float
    recap: dict[str, dict[str, int]]
    """Host -> ok, changed, unreachable, failed, ... of Ansible's recap."""
    ssh: collections.Counter[str]
    """Host address -> SSH operations."""

    @property
    def changed(self) -> dict[str, int]:
        """Return the hosts with changes, and how many tasks changed something there."""
        return {name: row["changed"] for name, row in self.recap.items() if row["changed"]}


def recap_of(output: str) -> dict[str, dict[str, int]]:
    """Return the counts in Ansible's PLAY RECAP: host -> ok, changed, unreachable, failed, ..."""
    rows: dict[str, dict[str, int]] = {}
    for line in output.partition("PLAY RECAP")[2].splitlines()[1:]:
        match = re.match(r"(\S+)\s+:\s+((?:\w+=\d+\s*)+)$", line)
        if match:
            rows[match[1]] = {
                key: int(value) for key, value in (item.split("=") for item in match[2].split())
            }
    return rows


def play(
    playbook: str, inventory: pathlib.Path, folder: pathlib.Path, *options: str, timeout: float = 1200
) -> Played:
    """Run a playbook of the project with ansible-playbook.

    Args:
        playbook: a name in ``playbooks/`` or a path.
        inventory: the inventory.
        folder: for the log of SSH operations; its path must be short.
        options: more options of ansible-playbook.
        timeout: seconds.
    """
    counter, log = folder / "ssh", folder / "ssh.log"
    counter.write_text(COUNTER)
    counter.chmod(0o755)
    log.write_text("")
    path = pathlib.Path(playbook) if "/" in playbook else ROOT / "playbooks" / f"{playbook}.yml"
    began = time.monotonic()
    done = subprocess.run(
        [str(BIN / "ansible-playbook"), "-i", str(inventory), *options, str(path)],
        cwd=ROOT,
        env=os.environ
        | {
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_SSH_EXECUTABLE": str(counter),
            "ANSIBLE_NOCOLOR": "1",
            "IRONSPAN_TEST_SSH_LOG": str(log),
        },
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        timeout=timeout,
    )
    seconds = time.monotonic() - began
    operations: collections.Counter[str] = collections.Counter()
    for line in log.read_text().splitlines():
        # `ssh -o ... ADDRESS 'command'`; `-O exit` and the like end a connection master and are no operation
        match = re.search(r" (\d+\.\d+\.\d+\.\d+) +/bin/sh ", line)
        if match:
            operations[match[1]] += 1
    return Played(done.returncode, done.stdout, seconds, recap_of(done.stdout), operations)
