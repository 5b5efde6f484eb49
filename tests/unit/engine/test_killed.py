# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``kill -9`` at every step of a run: the next run repairs everything, and restarts what has to restart."""

from __future__ import annotations

import io
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.crash import VARIABLE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils import payload

from tests.support.host_process import wire

if t.TYPE_CHECKING:
    from tests.unit.conftest import Mirror, Sandbox

Document = dict[str, t.Any]


def archive(**members: str) -> bytes:
    """Return a tar archive with executable files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, text in members.items():
            info = tarfile.TarInfo(f"top/{name}")
            info.size, info.mode = len(text), 0o755
            tar.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


def document(mirror: Mirror, configuration: str) -> Document:
    """A document with every kind of this test's machine, a unit at its end."""
    tool = mirror.offer("/tool", b"new tool " * 100)
    bundle = mirror.offer("/bundle.tgz", archive(one="1", two="22"))
    return {
        "schema": 1,
        "layers": ["l"],
        "resources": [
            {"kind": "directory", "id": "l/folder", "path": "/etc/app/more/deep", "mode": "0750"},
            {"kind": "file", "id": "l/config", "path": "/etc/app/app.conf", "content": configuration},
            {"kind": "file", "id": "l/key", "path": "/etc/app/key", "secret": "k", "mode": "0600"},
            {"kind": "artifact", "id": "l/tool", "path": "/opt/tool", **tool},
            {
                "kind": "artifact",
                "id": "l/bundle",
                "path": "/opt/bundle",
                "unpack": "tar",
                "strip": 1,
                **bundle,
            },
            {"kind": "symlink", "id": "l/link", "path": "/opt/current", "target": "bundle"},
            {"kind": "absent", "id": "l/old", "path": "/opt/old", "recursive": True},
            {"kind": "absent", "id": "l/stray", "path": "/etc/stray"},
            {
                "kind": "hosts_entries",
                "id": "l/names",
                "entries": [{"address": "10.0.0.1", "names": ["one"]}],
            },
            {
                "kind": "file",
                "id": "l/unit",
                "path": "/etc/systemd/system/app.service",
                "content": "[Service]\n",
            },
            {
                "kind": "systemd_unit",
                "id": "l/service",
                "name": "app",
                "requires": ["l/unit"],
                "restart_on": ["l/config", "l/key"],
            },
        ],
    }


def populate(sandbox: Sandbox) -> None:
    """What is on the host before: an older configuration, running; things to be replaced and removed."""
    sandbox.put("etc/app/app.conf", "old\n", 0o600)
    sandbox.put("opt/tool", b"old tool", 0o755)
    sandbox.put("opt/old/deep/file", "to go")
    sandbox.put("etc/stray", "to go")
    sandbox.put("etc/hosts", "127.0.0.1 localhost\n")
    sandbox.put("etc/systemd/system/app.service", "[Service]\n")
    sandbox.put("run/units/app.service.active", "old\n")
    sandbox.put("run/units/app.service.enabled", "")
    (sandbox.root / "opt/current").symlink_to("elsewhere")


def execute(sandbox: Sandbox, wanted: Document) -> dict[str, t.Any]:
    return sandbox.run(document=wanted, secrets={"k": "key material"})


def killed_at(step: int, sandbox: Sandbox, wanted: Document) -> bool:
    """Run in a process of its own that kills itself at a step; tell whether it got that far."""
    child = os.fork()
    if child == 0:
        os.environ[VARIABLE] = str(step)
        execute(sandbox, wanted)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    return False


def fresh(tmp_path: Path, template: Sandbox) -> Sandbox:
    """Return a copy of a host."""
    target = tmp_path / "copy"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(template.root, target, symlinks=True)
    copy = object.__new__(type(template))
    copy.root, copy.mirror = target, template.mirror
    return copy


def killed_everywhere(tmp_path: Path, template: Sandbox, wanted: Document) -> Iterator[tuple[int, Sandbox]]:
    """Yield copies of a host on which the run was killed at its first step, its second, and so on."""
    for step in itertools.count(1):
        host = fresh(tmp_path, template)
        if not killed_at(step, host, wanted):
            return
        yield step, host


# The mirror's thread does not touch anything that the forked engine uses.
pytestmark = pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")


@pytest.mark.usefixtures("no_sync")
def test_the_next_run_finishes_what_a_killed_one_began(
    tmp_path: Path, sandbox: Sandbox, mirror: Mirror
) -> None:
    populate(sandbox)
    wanted = document(mirror, "new\n")
    uninterrupted = fresh(tmp_path, sandbox)
    result = execute(uninterrupted, wanted)
    assert not result.get("failed"), result["msg"]
    expected = uninterrupted.snapshot()
    assert expected["run/units/app.service.active"][3] == b"new\n", "the service was restarted"
    assert not [name for name in expected if ".ironspan-" in name]

    for step, host in killed_everywhere(tmp_path, sandbox, wanted):
        result = execute(host, wanted)
        assert not result.get("failed"), (step, result["msg"])
        assert host.snapshot() == expected, f"after a kill at step {step}"
        assert host.calls().count("restart app.service") <= 2, "at most once in each run"
        again = execute(host, wanted)
        assert (again["changed"], again["resumed"]) == (False, False), (
            f"step {step}: the run after is a no-op"
        )
        assert not list((host.root / "var/lib/ironspan/backup").iterdir()), (
            f"step {step}: backups are given up"
        )
    # Counted are two places at each record of the journal (half written, written), and some in between.
    assert step >= 70


@pytest.mark.usefixtures("no_sync")
def test_killed_again_while_repairing(tmp_path: Path, sandbox: Sandbox, mirror: Mirror) -> None:
    populate(sandbox)
    wanted = document(mirror, "new\n")
    reference = fresh(tmp_path, sandbox)
    execute(reference, wanted)
    expected = reference.snapshot()
    chance = random.Random(4711)
    for _ in range(40):
        host = fresh(tmp_path, sandbox)
        kills = [chance.randrange(1, 90) for _ in range(chance.randrange(2, 5))]
        for step in kills:
            killed_at(step, host, wanted)
        result = execute(host, wanted)
        assert not result.get("failed"), (kills, result["msg"])
        assert host.snapshot() == expected, f"after kills at {kills}"


@pytest.mark.usefixtures("no_sync")
def test_a_failing_run_killed_anywhere_leaves_the_host_as_it_was(
    tmp_path: Path, sandbox: Sandbox, mirror: Mirror
) -> None:
    populate(sandbox)
    wanted = document(mirror, "broken\n")
    before = sandbox.snapshot()
    for step, host in killed_everywhere(tmp_path, sandbox, wanted):
        result = execute(host, wanted)
        assert result["failed"] and result["failed_resource"] == "l/service", step
        assert host.snapshot() == before, f"after a kill at step {step}"
    assert step >= 110


@pytest.mark.usefixtures("no_sync")
def test_a_killed_run_followed_by_an_impossible_document_goes_back(
    tmp_path: Path, sandbox: Sandbox, mirror: Mirror
) -> None:
    populate(sandbox)
    wanted = document(mirror, "new\n")
    before = sandbox.snapshot()
    impossible = {"kind": "file", "id": "l/x", "path": "/no/such/folder/x", "content": ""}
    for step in (3, 20, 40, 60):
        host = fresh(tmp_path, sandbox)
        assert killed_at(step, host, wanted)
        result = host.run(document={**wanted, "resources": [*wanted["resources"], impossible]})
        assert result["failed_resource"] == "l/x"
        assert host.snapshot() == before
        assert execute(host, wanted)["resumed"] is False


def test_the_real_module_process_killed(tmp_path: Path, sandbox: Sandbox, mirror: Mirror) -> None:
    """The same through the module's own main(), in a Python of its own, as Ansible starts it."""
    populate(sandbox)
    wanted = document(mirror, "new\n")
    reference = fresh(tmp_path, sandbox)
    execute(reference, wanted)
    expected = reference.snapshot()
    for step in (1, 33, 71):
        host = fresh(tmp_path, sandbox)
        arguments = {
            "document": wanted,
            "root": str(host.root),
            "mirror": host.mirror,
            "secrets": {"k": "key material"},
        }
        question = payload.question("converge", arguments, keep=True)
        text = wire({**question, "engine": payload.engine().packed, "_ansible_no_log": True})
        argv = [sys.executable, "-"]
        killed = subprocess.run(
            argv, input=text, text=True, env={**os.environ, VARIABLE: str(step)}, check=False
        )
        assert killed.returncode == -signal.SIGKILL
        repaired = subprocess.run(argv, input=text, text=True, capture_output=True, check=True)
        assert json.loads(repaired.stdout)["resumed"] == (step > 1)
        assert host.snapshot() == expected
