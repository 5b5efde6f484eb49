# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's real packages of Debian, changed by the real engine, apt and dpkg; no module is ever loaded.

They come from Debian's own servers; where those cannot be reached, the tests are skipped.
"""

from __future__ import annotations

import json
import signal
import time
import typing as t
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from ironspan.lab import base_image
from tests.support.debian_tree import ENGINE, DebianTree

pytestmark = [pytest.mark.lab, pytest.mark.long]

OLD, NEW = "550.163.01-2", "550.163.01-4~bpo13+1"
NAMES = ("libcuda1", "libnvidia-cfg1", "libnvidia-ml1", "nvidia-smi")
TOGETHER = (*NAMES, "nvidia-alternative", "libnvidia-ptxjitcompiler1")
"""Those and what they need in their own version."""
PREFERENCES = "/etc/apt/preferences.d/50-ironspan-nvidia"


def document(version: str) -> dict[str, t.Any]:
    """Return a document like the role's, without modules: these are compiled for many minutes."""
    pins = f"Package: *nvidia* libcuda*\nPin: version {version}\nPin-Priority: 1001\n"
    packages = {"packages": dict.fromkeys(NAMES, version), "hold": True, "idle": ["/dev/nvidia-uvm"]}
    resources = [
        {"kind": "file", "id": "gpu/preferences", "path": PREFERENCES, "content": pins},
        {"kind": "package_set", "id": "gpu/packages", "requires": ["gpu/preferences"], **packages},
        {"kind": "reboot_request", "id": "gpu/reboot", "reason": "a driver", "restart_on": ["gpu/packages"]},
    ]
    return {"schema": 1, "site": "s", "host": "h", "layers": ["gpu"], "resources": resources}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DebianTree]:
    """Return a tree whose lists are there."""
    try:
        urllib.request.urlopen("http://deb.debian.org/debian/dists/trixie/Release", timeout=20).close()
    except OSError as error:
        pytest.skip(f"Debian's servers cannot be reached: {error}")
    folder = tmp_path_factory.mktemp("tree")
    base_image.ensure("packages", folder, lambda *what: None)
    tree = DebianTree(folder)
    tree.run("apt-get", "update", "-q")
    yield tree


def converge(tree: DebianTree, wanted: dict[str, t.Any]) -> list[str]:
    """Apply a document, insist on success and on nothing left to do, and return what changed."""
    result = tree.engine(document=wanted)
    assert not result.get("failed"), result["msg"]
    again = tree.engine(document=wanted)
    assert again["changes"] == []
    return [change["resource"] for change in result["changes"]]


def assert_all(tree: DebianTree, version: str) -> None:
    """Insist that all packages have a version, and that those that were named are held."""
    states = tree.states()
    for name in TOGETHER:
        assert states[name][1] == version, name
        assert states[name][0].endswith(" ok installed"), name
        assert states[name][0].startswith("hold ") == (name in NAMES), name


def test_it_is_installed_in_exact_versions_and_held(tree: DebianTree) -> None:
    assert converge(tree, document(OLD)) == ["gpu/preferences", "gpu/packages", "gpu/reboot"]
    assert_all(tree, OLD)
    upgrade = tree.run("apt-get", "--simulate", "dist-upgrade")
    assert not any(f"Inst {name} " in upgrade for name in TOGETHER)


def test_a_killed_upgrade_is_finished_by_the_next_run(tree: DebianTree) -> None:
    process = tree.begin(document=document(NEW))
    end = time.monotonic() + 600
    try:
        # Half of it is unpacked, and the rest is not.
        while time.monotonic() < end and process.poll() is None:
            states = tree.states()
            if any(state[0].endswith(("unpacked", "half-installed")) for state in states.values()):
                break
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    states = tree.states()
    left = {name: states[name] for name in TOGETHER if states[name] != (states[name][0], OLD)}
    broken = [name for name, state in states.items() if not state[0].endswith(("installed", "config-files"))]
    assert left or broken, "it was killed before dpkg had begun, or after it had ended"
    result = tree.engine(document=document(NEW))
    assert not result.get("failed"), result["msg"]
    assert result["resumed"]
    assert_all(tree, NEW)
    assert tree.engine(document=document(NEW))["changes"] == []


def test_the_way_back_is_one_step_and_needs_no_source(tree: DebianTree) -> None:
    sources = tree.folder / "up/etc/apt/sources.list"
    kept = sources.read_text()
    sources.write_text("")
    # As after a boot: until then a host asks for it once.
    tree.run("rm", "-rf", "/var/lib/apt/lists", "/run/ironspan")
    former = tree.engine(mode="rollback")
    assert not former.get("failed"), former["msg"]
    changed = converge(tree, former["document"])
    assert changed == ["gpu/preferences", "gpu/packages", "gpu/reboot"]
    assert_all(tree, OLD)
    sources.write_text(kept)


def test_a_version_that_nobody_has_changes_nothing(tree: DebianTree) -> None:
    result = tree.engine(document=document("550.163.01-99"))
    assert result["failed"]
    assert "550.163.01-99" in result["msg"]
    assert result["rolled_back"]
    assert_all(tree, OLD)
    assert Path(tree.folder, f"up{PREFERENCES}").read_text().count(OLD) == 1


def test_a_process_that_computes_keeps_its_driver(tree: DebianTree) -> None:
    wanted = document(NEW)
    wanted["resources"][1]["idle"] = ["/tmp/d/n"]
    opened = "exec 3</tmp/d/n && touch /tmp/d/has"
    computes = f"mkdir -p /tmp/d && mknod /tmp/d/n c 1 3 && {opened} && exec sleep 600"
    has = "until [ -e /tmp/d/has ]; do sleep 0.1; done"
    program = f'({computes}) >/dev/null 2>&1 & {has}; exec python3 -c "$0"'
    result = json.loads(tree.run("sh", "-c", program, ENGINE, stdin=json.dumps({"document": wanted})))
    assert result["failed"]
    assert "/tmp/d/n open" in result["msg"]
    assert_all(tree, OLD)
