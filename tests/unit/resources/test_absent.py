# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``absent``, through the engine."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import absent

if t.TYPE_CHECKING:
    from tests.unit.conftest import Sandbox

GONE: dict[str, t.Any] = {"kind": "absent", "id": "a", "path": "/srv/x"}
FAILING = {
    "kind": "artifact",
    "id": "z",
    "path": "/opt/x",
    "url_path": "/none",
    "sha256": "0" * 64,
    "size": 1,
}


def prepare(sandbox: Sandbox, there: str) -> Path:
    path = sandbox.root / "srv/x"
    path.parent.mkdir()
    if there == "file":
        sandbox.put("srv/x", "content", 0o640)
    elif there == "link":
        sandbox.put("srv/target", "stays")
        path.symlink_to("target")
    elif there in ("empty", "full"):
        path.mkdir(mode=0o711)
        if there == "full":
            sandbox.put("srv/x/deep/er", "content", 0o600)
            (path / "link").symlink_to("/srv/target")
    return path


@pytest.mark.parametrize(
    ("there", "recursive", "state"),
    [
        ("nothing", False, None),
        ("nothing", True, None),
        ("file", False, "file"),
        ("file", True, "file"),
        ("link", False, "link"),
        ("empty", False, "folder"),
        ("empty", True, "folder"),
        ("full", True, "folder"),
    ],
)
def test_compare_apply_and_rollback(sandbox: Sandbox, there: str, recursive: bool, state: str | None) -> None:
    path = prepare(sandbox, there)
    before = sandbox.snapshot()
    given = {**GONE, "recursive": recursive}
    planned = sandbox.run(given, check=True)["changes"]
    assert [entry["before"]["state"] for entry in planned] == ([state] if state else [])
    assert sandbox.run(given, FAILING)["failed_resource"] == "l/z"
    assert sandbox.snapshot() == before
    assert len(sandbox.changed(given)) == len(planned)
    assert not path.exists()
    assert not path.is_symlink()
    if there == "link":
        assert sandbox.read("srv/target") == "stays"
    assert [entry.name for entry in path.parent.iterdir() if entry.name.startswith(".")] == []
    assert sandbox.changed(given) == []


def test_a_full_folder_is_refused(sandbox: Sandbox) -> None:
    prepare(sandbox, "full")
    before = sandbox.snapshot()
    result = sandbox.run(GONE)
    assert "/srv/x is a folder with 2 entries" in result["msg"]
    assert "recursive: true" in result["remedy"]
    assert sandbox.snapshot() == before


def test_a_mount_point_below_is_refused(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    path = prepare(sandbox, "full")
    mounted = str(path / "deep")
    monkeypatch.setattr(absent, "_mounts", lambda _: [mounted])
    before = sandbox.snapshot()
    result = sandbox.run({**GONE, "recursive": True})
    assert "deep is a mount point" in result["msg"]
    assert sandbox.snapshot() == before


def test_mounts_of_this_machine() -> None:
    assert "/proc" in absent._mounts("/proc")
    assert absent._mounts("/proc/self/no/such") == []


def test_a_folder_that_others_use_stays(sandbox: Sandbox) -> None:
    sandbox.put("srv/x/ours", "1")
    inner = {"kind": "absent", "id": "i", "path": "/srv/x/ours"}
    outer = {**GONE, "keep_used": True, "requires": ["l/i"]}
    sandbox.put("srv/x/theirs", "2")
    assert sandbox.changed(inner, outer) == ["i"]
    assert sandbox.read("srv/x/theirs") == "2"
    (sandbox.root / "srv/x/theirs").unlink()
    sandbox.put("srv/x/ours", "1")
    assert sandbox.changed(inner, outer) == ["i", "a"]
    assert not (sandbox.root / "srv/x").exists()
