# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How ``ironspan egress show`` ends, and what it shows of hosts that are not as they should be."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.egress_rules import as_text, report_of

from ironspan.cli import egress, playbook
from ironspan.cli.main import build_parser
from ironspan.cli.outcome import Exit

from .test_doctor import FakeRun

OPEN = {"counters": {}, "rules": "", "file": ""}
EMPTY = {"counters": {"outside": 3, "metadata": 0}, "rules": '{"nftables": []}', "file": ""}


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (None, "did not answer"),
        ({"failed": True, "msg": "x"}, "did not answer"),
        (OPEN, "the table is not loaded: pods reach everything"),
        ({**OPEN, "rules": "no JSON"}, ""),
        (EMPTY, ""),
    ],
)
def test_what_is_wrong_is_named(answer: dict[str, t.Any] | None, problem: str) -> None:
    report = report_of({"rack-1": answer}, 0)
    assert report["hosts"]["rack-1"]["problem"] == problem
    assert report["ok"] is not bool(problem)
    assert as_text(report).startswith("rack-1:" + (f" {problem}" if problem else ""))


def test_drops_are_shown() -> None:
    assert as_text(report_of({"rack-1": EMPTY}, 0)).endswith("  dropped: outside 3")


@pytest.mark.parametrize(
    ("brought", "code", "ends"),
    [
        ({"ok": True, "hosts": {}}, Exit.OK, 0),
        ({"ok": False, "hosts": {}}, Exit.OK, 1),
        ({"ok": False, "hosts": {}}, Exit.HOSTS, 4),
        (None, Exit.BAD_INPUT, 2),
    ],
)
def test_how_it_ends(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    brought: dict[str, t.Any] | None,
    code: Exit,
    ends: int,
) -> None:
    run = FakeRun(tmp_path, [])
    run.run.results = {egress.REPORT: {"report": brought, "text": "the rules"}} if brought else {}
    monkeypatch.setattr(playbook, "run_playbook", lambda *rest: (code, run))
    file = tmp_path / "report.json"
    arguments = build_parser().parse_args(["egress", "show", "--limit", "rack-1", "--report", str(file)])
    assert arguments.func(arguments) == ends
    assert arguments.limit == "rack-1,localhost"
    if brought:
        assert json.loads(file.read_text()) == brought
        assert "the rules" in capsys.readouterr().out
