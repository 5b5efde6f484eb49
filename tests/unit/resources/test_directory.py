# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``directory``, through the engine."""

from __future__ import annotations

import typing as t

import pytest

if t.TYPE_CHECKING:
    from tests.unit.conftest import Sandbox

FOLDER: dict[str, t.Any] = {"kind": "directory", "id": "d", "path": "/srv/one/two", "mode": "0750"}


def test_makes_what_is_missing_above(sandbox: Sandbox) -> None:
    assert sandbox.changed(FOLDER) == ["d"]
    modes = [(sandbox.root / path).stat().st_mode & 0o777 for path in ("srv", "srv/one", "srv/one/two")]
    assert modes == [0o755, 0o755, 0o750]
    assert sandbox.changed(FOLDER) == []


def test_contents_are_left_alone(sandbox: Sandbox) -> None:
    sandbox.put("srv/one/two/file", "mine", 0o600)
    (sandbox.root / "srv/one/two").chmod(0o700)
    assert sandbox.changed(FOLDER) == ["d"]
    assert (sandbox.root / "srv/one/two/file").stat().st_mode & 0o777 == 0o600
    assert sandbox.read("srv/one/two/file") == "mine"


def test_a_link_to_a_folder_counts_as_one(sandbox: Sandbox) -> None:
    (sandbox.root / "srv/one").mkdir(parents=True)
    (sandbox.root / "srv/real").mkdir()
    (sandbox.root / "srv/real").chmod(0o750)
    (sandbox.root / "srv/one/two").symlink_to("../real")
    assert sandbox.changed(FOLDER) == []


@pytest.mark.parametrize("what", ["file", "dangling"])
def test_what_is_in_the_way_is_refused(sandbox: Sandbox, what: str) -> None:
    if what == "file":
        sandbox.put("srv/one/two", "")
    else:
        (sandbox.root / "srv/one").mkdir(parents=True)
        (sandbox.root / "srv/one/two").symlink_to("nowhere")
    result = sandbox.run(FOLDER)
    assert "/srv/one/two exists and is" in result["msg"]


def test_a_rollback_removes_what_was_made_above_and_restores_modes(sandbox: Sandbox) -> None:
    (sandbox.root / "srv").mkdir(mode=0o711)
    (sandbox.root / "srv/there").mkdir(mode=0o700)
    before = sandbox.snapshot()
    there = {"kind": "directory", "id": "there", "path": "/srv/there", "mode": "0755"}
    failing = {
        "kind": "artifact",
        "id": "z",
        "path": "/opt/x",
        "url_path": "/none",
        "sha256": "0" * 64,
        "size": 1,
    }
    result = sandbox.run(FOLDER, there, failing)
    assert result["failed_resource"] == "l/z"
    assert sandbox.snapshot() == before
