# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which kept plans the doctor takes for unfinished, from the reports that runs write."""

from __future__ import annotations

import json
import types
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.ask import open_plans
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan import keep

HOST = {"digest": "d", "fingerprint": "f"}
CONTENT = {
    "site": {"name": "small"},
    "expires": 9,
    "operation": "site",
    "arguments": {},
    "hosts": {"r1": HOST},
}
SITE = t.cast("t.Any", types.SimpleNamespace(name="small"))


def kept() -> Path:
    """Begin to apply a plan."""
    plan = t.cast("t.Any", types.SimpleNamespace(
        content=CONTENT, digest="ab" * 32, data=json.dumps({"plan": CONTENT}).encode()
    ))  # fmt: skip
    return keep.keep(plan, Path("no.plan.json"), [], inventory_moved=False)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv(keep.ENDS, raising=False)


def test_a_command_that_was_killed_leaves_its_plan_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(keep.ENDS, "1")
    folder = kept()
    (found,) = open_plans(SITE)
    assert (found["file"], found["hosts"]) == (str(folder / "plan.json"), {"r1": HOST})
    assert (found["operation"], found["arguments"]) == ("site", {})


@pytest.mark.parametrize(("code", "ended"), [(0, True), (1, False), (3, False), (130, False)])
def test_a_run_that_ended_well_closes_it(monkeypatch: pytest.MonkeyPatch, code: int, ended: bool) -> None:
    monkeypatch.setenv(keep.ENDS, "1")
    keep.report(kept(), event="end", code=code)
    assert (open_plans(SITE) == []) is ended


def test_of_plain_ansible_only_a_failed_host_tells() -> None:
    folder = kept()
    assert open_plans(SITE) == []
    keep.report(folder, event="host", host="r1", failed=True, changes=[])
    assert len(open_plans(SITE)) == 1
