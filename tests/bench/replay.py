# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Hosts that only answer: what a real simulated host said is said again in the place of ssh.

So the controller's own share can be measured with many hosts on a small machine: Ansible, the actions, the
documents, the module's payload are all real, and what is sent is read to the end. What is missing is
OpenSSH's client (measured with real connections in ``test_fleet.py``) and the host.
"""

from __future__ import annotations

import json
import pathlib
import typing as t

from tests.bench.hosts import Hosts

# Each host gives its answers in their order, the last one again and again; its clock is right.
PROGRAM = """\
#!/bin/sh
echo >> "$IRONSPAN_BENCH_SSH_LOG"
cat > /dev/null
for word; do case $word in 127.*) host=$word ;; esac; done
answers={folder}/answers/$IRONSPAN_BENCH_SCENE/
[ -d "$answers$host" ] && answers=$answers$host/
seen={folder}/seen/$host
turn=1
[ -e "$seen" ] && read -r turn < "$seen"
[ -e "$answers$((turn + 1))" ] && echo $((turn + 1)) > "$seen"
exec sed "s/@TIME@/$(date +%s)/" "$answers$turn"
"""
TIME = "@TIME@"


class Replayed(Hosts):
    """A number of hosts that say what they are told to.

    Args:
        folder: an empty folder.
        count: how many hosts.
    """

    def __init__(self, folder: pathlib.Path, count: int) -> None:
        super().__init__(folder, count)
        (folder / "seen").mkdir(parents=True)
        program = folder / "ssh"
        program.write_text(PROGRAM.format(folder=folder))
        program.chmod(0o755)

    def tell(self, scene: str, answers: t.Sequence[t.Mapping[str, t.Any]], host: str = "") -> None:
        """Set what hosts answer.

        Args:
            scene: a name for this set of answers, see ``play``.
            answers: what the module returns, one for each execution on a host.
            host: only for this one; the others keep those that are for all.
        """
        where = self.folder / "answers" / scene
        if host:
            where /= self.address(self.names.index(host))
        where.mkdir(parents=True, exist_ok=True)
        for turn, answer in enumerate(answers, start=1):
            given: dict[str, t.Any] = json.loads(json.dumps(answer))
            if "time_unix" in given.get("facts", {}):
                given["facts"]["time_unix"] = TIME
            (where / str(turn)).write_text(json.dumps(given).replace(f'"{TIME}"', TIME) + "\n")

    def settle(self) -> None:
        """Let every host begin with its first answer again."""
        for file in (self.folder / "seen").iterdir():
            file.unlink()
