# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``reboot_request``: asked once, fulfilled by a boot, taken back with what it was for."""

from __future__ import annotations

import json
import shutil
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.reboot_request import (
    FOLDER,
    requests,
)

if t.TYPE_CHECKING:
    from tests.unit.conftest import Sandbox

REASON = "the kernel reads its arguments when it boots"
REQUEST: dict[str, t.Any] = {
    "kind": "reboot_request",
    "id": "reboot",
    "reason": REASON,
    "restart_on": ["l/arguments"],
}


def arguments(content: str) -> dict[str, t.Any]:
    return {"kind": "file", "id": "arguments", "path": "/etc/arguments", "content": content}


def waiting(sandbox: Sandbox) -> list[str]:
    found = requests(str(sandbox.root / FOLDER.lstrip("/")))
    return [f"{request['resource']}: {request['reason']}" for request in found]


def test_what_changed_asks_once_until_the_host_was_rebooted(sandbox: Sandbox) -> None:
    planned = sandbox.run(arguments("a"), REQUEST, check=True)
    assert [entry["resource"] for entry in planned["changes"]] == ["l/arguments", "l/reboot"]
    assert planned["changes"][1]["after"] == {"reboot": "waits", "because": REASON}
    assert planned["changes"][1]["reason"] == "required by l/arguments"
    assert waiting(sandbox) == planned["facts"]["reboots"] == []
    assert sandbox.changed(arguments("a"), REQUEST) == ["arguments", "reboot"]
    assert waiting(sandbox) == [f"l/reboot: {REASON}"]
    again = sandbox.run(arguments("a"), REQUEST)
    assert (again["changes"], [entry["resource"] for entry in again["facts"]["reboots"]]) == (
        [],
        ["l/reboot"],
    )
    assert sandbox.changed(arguments("b"), REQUEST) == ["arguments"], "it waits already"
    assert sandbox.calls() == [], "nothing is asked of systemd"
    shutil.rmtree(sandbox.root / "run/ironspan")  # a boot
    assert sandbox.changed(arguments("b"), REQUEST) == []
    assert waiting(sandbox) == []
    assert sandbox.changed(arguments("c"), REQUEST) == ["arguments", "reboot"]


def test_a_failure_takes_the_request_back(sandbox: Sandbox) -> None:
    bad = {"kind": "file", "id": "x", "path": "/etc/nowhere/x", "content": "", "requires": ["l/reboot"]}
    fails = {"kind": "systemd_unit", "id": "u", "name": "nothing", "requires": ["l/reboot"]}
    for last in (bad, fails):
        before = sandbox.snapshot()
        assert sandbox.run(arguments("a"), REQUEST, last)["failed"]
        assert waiting(sandbox) == []
        assert {k: v for k, v in sandbox.snapshot().items() if not k.startswith("run")} == {
            k: v for k, v in before.items() if not k.startswith("run")
        }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reason": "two\nlines"}, "reason must be one line for the operator"),
        ({"reason": " "}, "reason must be one line for the operator"),
        ({"restart_on": []}, "restart_on is empty"),
        ({"restart_on": ["l/argument"]}, "refers to 'l/argument', which this document does not have"),
    ],
)
def test_refusals(sandbox: Sandbox, change: dict[str, t.Any], message: str) -> None:
    assert message in sandbox.run(arguments("a"), {**REQUEST, **change})["msg"]


def test_a_request_that_nothing_declares_any_more_is_withdrawn(sandbox: Sandbox) -> None:
    sandbox.changed(arguments("a"), REQUEST)
    assert sandbox.changed(document=sandbox.document(arguments("a"), prunes=["l"])) == ["reboot-removed"]
    assert waiting(sandbox) == []


def test_what_is_no_request_is_not_told(sandbox: Sandbox) -> None:
    folder = "run/ironspan/reboot"
    for name, text in (("a", "no JSON"), ("b", "[]"), ("c", '{"reason": 1}')):
        sandbox.put(f"{folder}/{name}", text)
    sandbox.put(f"{folder}/d", json.dumps({"resource": "l/d", "reason": "r", "since": 1}))
    assert requests(str(sandbox.root / FOLDER.lstrip("/"))) == [
        {"resource": "l/d", "reason": "r", "since": 1}
    ]
