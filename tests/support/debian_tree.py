# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A Debian tree of its own, on which the real engine runs with the real apt and dpkg."""

from __future__ import annotations

import json
import subprocess
import sys
import typing as t
from pathlib import Path

from ironspan.lab import base_image
from tests.support.playbooks import ROOT

ENGINE = """\
import json, sys
sys.path.insert(0, "/opt/ironspan/collections")
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.engine import run
json.dump(run(json.load(sys.stdin), diff=True), sys.stdout)
"""
MOUNTED = """\
set -e
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/up,workdir=$2/work" "$2/root"
mount -t proc proc "$2/root/proc"
mount --rbind /dev "$2/root/dev"
mkdir -p "$2/root/opt/ironspan"
mount --bind "$3" "$2/root/opt/ironspan"
root="$2/root"
shift 3
exec chroot "$root" "$@"
"""
SOURCES = """\
deb http://deb.debian.org/debian trixie main contrib non-free non-free-firmware
deb http://deb.debian.org/debian trixie-backports main contrib non-free non-free-firmware
"""


class DebianTree:
    """The base tree of lab hosts with a layer of its own above it, which lies in ``folder``.

    Every command has a mount and a process namespace of its own: when it is killed, all that it started dies
    with it, and nothing stays mounted.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("up", "work", "root"):
            (folder / name).mkdir()
        self.put("etc/apt/sources.list", SOURCES)
        self.put("etc/resolv.conf", Path("/etc/resolv.conf").read_text())
        # Nothing that packages bring is started.
        self.put("usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n", 0o755)

    def put(self, path: str, text: str, mode: int = 0o644) -> None:
        """Write a file of the tree while no command runs."""
        real = self.folder / "up" / path
        real.parent.mkdir(parents=True, exist_ok=True)
        real.write_text(text)
        real.chmod(mode)

    def command(self, *argv: str) -> list[str]:
        """Return what runs a command in the tree."""
        place = (str(base_image.tree_path()), str(self.folder), str(ROOT))
        unshare = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]
        return [*unshare, "sh", "-c", MOUNTED, "sh", *place, *argv]

    def run(self, *argv: str, stdin: str = "") -> str:
        """Run a command and return what it printed; it has to succeed."""
        done = subprocess.run(
            self.command(*argv), input=stdin, text=True, capture_output=True, check=False, timeout=7200
        )
        assert done.returncode == 0, f"{argv}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def engine(self, **params: t.Any) -> dict[str, t.Any]:
        """Run the engine and return its result."""
        return dict(json.loads(self.run("python3", "-c", ENGINE, stdin=json.dumps(params))))

    def begin(self, **params: t.Any) -> subprocess.Popen[str]:
        """Begin a run of the engine that is going to be killed."""
        process = subprocess.Popen(
            self.command("python3", "-c", ENGINE),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=sys.stderr,
            text=True,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(params))
        process.stdin.close()
        return process

    def states(self) -> dict[str, tuple[str, str]]:
        """Return state and version of every package that dpkg knows of, also while it runs."""
        file = self.folder / "up/var/lib/dpkg/status"
        found = {}
        for block in file.read_text().split("\n\n") if file.exists() else ():
            lines = [line for line in block.splitlines() if ": " in line and line[0] != " "]
            fields = dict(line.split(": ", 1) for line in lines)
            if "Package" in fields:
                found[fields["Package"]] = (fields["Status"], fields.get("Version", ""))
        return found
