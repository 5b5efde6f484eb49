# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``symlink``, through the engine."""

from __future__ import annotations

import typing as t

import pytest

if t.TYPE_CHECKING:
    from tests.unit.conftest import Sandbox

LINK: dict[str, t.Any] = {"kind": "symlink", "id": "l", "path": "/etc/link", "target": "some/where"}

CASES = [
    ("absent", "create", {"state": "absent"}),
    ("same", None, {}),
    ("other", "update", {"target": "else/where"}),
    ("file", "update", {"state": "file"}),
]


@pytest.mark.parametrize(("there", "action", "before"), CASES)
def test_compare_and_apply(sandbox: Sandbox, there: str, action: str | None, before: dict[str, str]) -> None:
    path = sandbox.root / "etc/link"
    if there in ("same", "other"):
        path.symlink_to("some/where" if there == "same" else "else/where")
    elif there == "file":
        path.write_text("x")
    changes = sandbox.run(LINK)["changes"]
    assert [(entry["action"], entry["before"]) for entry in changes] == ([(action, before)] if action else [])
    assert str(path.readlink()) == "some/where"
    assert sandbox.changed(LINK) == []


def test_a_folder_is_refused(sandbox: Sandbox) -> None:
    (sandbox.root / "etc/link").mkdir()
    assert "/etc/link exists and is a folder" in sandbox.run(LINK)["msg"]


def test_the_folder_must_be_there(sandbox: Sandbox) -> None:
    assert "the folder /srv does not exist" in sandbox.run({**LINK, "path": "/srv/link"})["msg"]


@pytest.mark.parametrize("there", ["absent", "other", "file"])
def test_rollback(sandbox: Sandbox, there: str) -> None:
    path = sandbox.root / "etc/link"
    if there == "other":
        path.symlink_to("else/where")
    elif there == "file":
        path.write_text("x")
    before = sandbox.snapshot()
    failing = {
        "kind": "artifact",
        "id": "z",
        "path": "/opt/x",
        "url_path": "/none",
        "sha256": "0" * 64,
        "size": 1,
    }
    assert sandbox.run(LINK, failing)["rolled_back"] == ["l/z", "l/l"]
    assert sandbox.snapshot() == before
