# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kept engine where nothing may be executed or written, or the disk is full; with become; unpipelined.

The mounts are real, in a mount namespace of their own that ends with the test.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import typing as t
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils import _kept
from ansible_collections.ironspan.hybrid.plugins.plugin_utils import payload

from tests.support.host_process import HostProcess
from tests.support.playbooks import ROOT

DOCUMENT = {"schema": 1, "resources": [{"kind": "file", "id": "a", "path": "/etc/a", "content": "x"}]}
STATE = "var/lib/ironspan"
BIG = 3 << 20
ROOM = "size=4m,mode=0700"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")


class Mounted(HostProcess):
    """A host in a mount namespace of its own."""

    def shell(self, line: str) -> str:
        """Run a line of shell where the host's mounts are."""
        argv = [*self.command[:-2], "sh", "-ec", line]
        return subprocess.run(argv, cwd=self.root, capture_output=True, text=True, check=True).stdout

    @property
    def kept(self) -> str:
        """Names in the engine's folder."""
        return self.shell(f"ls {self.root}{_kept.FOLDER} 2>/dev/null || true").strip()


Mount = Callable[[str, str], Mounted]


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Mount]:
    """Makes the host, with a tmpfs of these options on a folder of its root."""
    holders: list[subprocess.Popen[str]] = []

    def mount(folder: str, options: str) -> Mounted:
        root = tmp_path / "root"
        for each in ("etc", STATE, folder):
            (root / each).mkdir(parents=True, exist_ok=True)
        line = f"mount -t tmpfs -o {options} tmpfs {root / folder}; echo there; exec sleep 600"
        argv = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", line]
        holder = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        holders.append(holder)
        assert holder.stdout is not None and holder.stdout.readline() == "there\n"
        return Mounted(root, before=["nsenter", "-t", str(holder.pid), "-m"])

    yield mount
    for holder in holders:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert holder.stdout is not None
        holder.stdout.close()


def test_a_folder_without_exec_is_enough(mounted: Mount) -> None:
    host = mounted(STATE, f"{ROOM},noexec,nosuid,nodev")
    with pytest.raises(subprocess.CalledProcessError):
        host.shell(f"cp /bin/true {host.root}/{STATE}/true; {host.root}/{STATE}/true")
    assert host.converge(DOCUMENT)["changed"]
    assert (len(host.sent), host.kept) == (2, payload.engine().digest)
    again = host.converge(DOCUMENT)
    assert (again["changed"], len(host.sent), "warnings" in again) == (False, 1, False)


@pytest.mark.parametrize("kept", [True, False])
def test_a_read_only_folder_can_be_compared_and_says_why_it_cannot_be_changed(
    mounted: Mount, kept: bool
) -> None:
    host = mounted(STATE, ROOM)
    if kept:
        host.converge(DOCUMENT)
        host.shell(f"rm {host.root}/etc/a")
    host.shell(f"mount -o remount,ro {host.root}/{STATE}")
    seen = host.converge(DOCUMENT, mode="assess")
    assert [change["resource"] for change in seen["changes"]] == ["a"]
    assert len(host.sent) == (1 if kept else 2)
    if not kept:
        (said,) = seen["warnings"]
        assert "rack-7 cannot keep the engine and is sent it each time" in said
        assert "Read-only file system" in said
    told = host.converge(DOCUMENT)
    assert told["failed"] and "Read-only file system" in told["msg"], told["msg"]
    assert f"/{STATE}" in told["msg"] and told["remedy"]
    assert not (host.root / "etc/a").exists()
    host.shell(f"mount -o remount,rw {host.root}/{STATE}")
    assert host.converge(DOCUMENT)["changed"]


@pytest.mark.parametrize("kept", [True, False])
def test_a_full_disk_is_said_and_nothing_half_is_left(mounted: Mount, kept: bool) -> None:
    host = mounted(STATE, ROOM)
    if kept:
        host.converge(DOCUMENT)
        host.shell(f"rm {host.root}/etc/a")
    host.shell(f"cat /dev/zero > {host.root}/{STATE}/filler 2>/dev/null || true")
    seen = host.converge(DOCUMENT, mode="assess")
    assert [change["resource"] for change in seen["changes"]] == ["a"]
    assert (len(host.sent), host.kept) == ((1, payload.engine().digest) if kept else (2, ""))
    if not kept:
        assert "No space left on device" in seen["warnings"][0]
    told = host.converge(DOCUMENT)
    assert told["failed"] and "No space left on device" in told["msg"], told["msg"]
    assert f"/{STATE}" in told["msg"] and told["remedy"]
    assert not (host.root / "etc/a").exists()
    host.shell(f"rm {host.root}/{STATE}/filler")
    assert host.converge(DOCUMENT)["changed"]
    assert host.kept == payload.engine().digest


def test_a_disk_that_is_full_while_the_former_engine_is_kept(mounted: Mount) -> None:
    """The engine at work is sent; the former copy stays whole, because nothing is written over."""
    host = mounted(STATE, ROOM)
    host.converge(DOCUMENT)
    folder = f"{host.root}{_kept.FOLDER}"
    host.shell(f"mv {folder}/{payload.engine().digest} {folder}/{'0' * 64}")
    host.shell(f"cat /dev/zero > {host.root}/{STATE}/filler 2>/dev/null || true")
    seen = host.converge(DOCUMENT, mode="assess")
    assert not seen["changes"] and "No space left on device" in seen["warnings"][0]
    assert host.kept == "0" * 64


def test_the_whole_host_is_read_only(mounted: Mount) -> None:
    host = mounted(STATE, ROOM)
    host.shell(f"mount --bind {host.root} {host.root}; mount -o remount,bind,ro {host.root}")
    told = host.converge(DOCUMENT)
    assert told["failed"] and "Read-only file system" in told["msg"] and told["remedy"], told["msg"]
    assert [change["resource"] for change in host.converge(DOCUMENT, mode="assess")["changes"]] == ["a"]


PLAY = """\
- hosts: all
  gather_facts: false
  tasks:
    - ironspan.hybrid.converge:
        document: "{{ wanted }}"
        root: "{{ private_root }}"
"""


def inventory(folder: Path) -> dict[str, t.Any]:
    """Return four hosts: with and without become and pipelining; each has a root of its own."""
    hosts: dict[str, t.Any] = {}
    for become in (False, True):
        for pipelining in (False, True):
            name = f"become-{become}-pipelining-{pipelining}".lower()
            (folder / name / "etc").mkdir(parents=True)
            hosts[name] = {
                "ansible_connection": "local",
                "ansible_python_interpreter": sys.executable,
                "ansible_pipelining": pipelining,
                "ansible_become": become,
                "ansible_become_method": "ansible.builtin.su",
                "ansible_remote_tmp": str(folder / "tmp"),
                "private_root": str(folder / name),
                "wanted": DOCUMENT,
            }
    return {"all": {"hosts": hosts}}


def test_with_become_and_without_pipelining_where_nothing_may_be_executed(mounted: Mount) -> None:
    """A run of ansible-playbook; its temporary files too lie on a file system without exec."""
    host = mounted("hosts", "size=64m,mode=0700,noexec")
    folder = host.root / "hosts"
    hosts = inventory(host.root / "made")
    text = json.dumps(hosts).replace(str(host.root / "made"), str(folder))
    host.shell(f"cp -r {host.root}/made/. {folder}; chmod -R go-w {folder}")
    (host.root / "hosts.json").write_text(text)
    (host.root / "play.yml").write_text(PLAY)
    environment = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_HOME": str(host.root / "ansible")}
    said = [f"{name}={value}" for name, value in environment.items()]
    argv = [*host.command[:-2], "env", *said, str(Path(sys.executable).parent / "ansible-playbook")]
    argv += ["-i", str(host.root / "hosts.json"), str(host.root / "play.yml")]
    times = []
    for run in range(2):
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count("changed=1") == (0 if run else 4), done.stdout
        assert "cannot keep" not in done.stdout + done.stderr
        times.append(host.shell(f"stat -c '%i %Z' {folder}/*{_kept.FOLDER}/{payload.engine().digest}"))
    assert times[0] == times[1] and len(times[0].splitlines()) == 4, "kept once, used the second time"
