# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Plays for the small site of the unit tests: the real actions and module, hosts that are private roots."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import yaml

from tests.support.playbooks import ROOT

TWO = ("--limit", "localhost,a1,w2")
VALIDATE = """\
- hosts: localhost
  gather_facts: false
  tasks:
    - ironspan.hybrid.validate:
        purpose: {purpose}
        roles_folder: "{{roles}}"
"""
COMPARE = """\
- hosts: all
  gather_facts: false
  tasks:
    - ironspan.hybrid.converge:
        mode: assess
        root: "{{{{ user_root }}}}"
        roles_folder: "{roles}"
"""
CONVERGE_PENDING = """\
- hosts: all:&__ironspan_pending
  gather_facts: false
  tasks:
    - ironspan.hybrid.converge:
        root: "{{{{ user_root }}}}"
        roles_folder: "{roles}"
"""
APPLY = VALIDATE.format(purpose="apply") + COMPARE + CONVERGE_PENDING
"""What site.yml does, in short; ``{roles}`` is the folder of the roles."""
# In the place of ssh: a line for every attempt to reach a host, and none is reached.
SSH = """\
#!/bin/sh
echo "$@" >>{log}
exit 255
"""


def play(folder: Path, text: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a playbook against the inventory in a folder."""
    playbook = folder / "play.yml"
    playbook.write_text(text)
    return run(folder, str(playbook), "-i", str(folder / "hosts.yml"), *options, **environment)


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ansible-playbook with the project's configuration."""
    return subprocess.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), *arguments],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", "XDG_CACHE_HOME": str(folder / "cache"), **environment},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def files(folder: Path) -> dict[str, bytes]:
    """Return the files below the hosts' roots, without the engine's own."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted((folder / "roots").rglob("*"))
        if path.is_file() and "var/lib/ironspan" not in str(path)
    }


def mirror_index() -> str:
    """Return the index of a mirror that holds everything in the lock file."""
    lock = yaml.safe_load((ROOT / "artifacts.lock.yml").read_text())
    artifacts = {
        f"{name}/amd64": {"path": f"/x/{name}", "sha256": "4" * 64, "size": 7} for name in lock["files"]
    }
    images = {ref: {"digest": "sha256:" + "5" * 64, "size": 7} for ref in lock["images"]}
    return json.dumps({"schema": 1, "artifacts": artifacts, "images": images})
