# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``rollback``, ``confirm`` and ``apply --try``: which playbook runs, and what is shown."""

from __future__ import annotations

import itertools
import json
import pathlib
import types
import typing as t

import pytest

from ironspan.cli import main, playbook
from ironspan.cli.back import lines_of
from ironspan.cli.outcome import Exit
from ironspan.cli.report import Run

Ran = list[tuple[str, list[str]]]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Every playbook that a command would run, with its options."""
    found: Ran = []

    def run_playbook(command: str, name: str, options: list[str], *_: t.Any) -> t.Any:
        found.append((name, list(options)))
        return Exit.OK, types.SimpleNamespace(run=Run(), log="log")

    monkeypatch.setattr(playbook, "run_playbook", run_playbook)
    return found


def variables(options: list[str]) -> dict[str, t.Any]:
    """Return what -e gives as JSON."""
    given: dict[str, t.Any] = {}
    for option, value in itertools.pairwise(options):
        if option == "-e":
            given.update(json.loads(value))
    return given


CASES = [
    (["rollback", "rack-1"], "rollback", {"ironspan_hosts": "rack-1"}),
    (
        ["rollback", "nodes", "az-1", "--to", "ab12", "--try", "5m"],
        "rollback",
        {"ironspan_hosts": "nodes,az-1", "ironspan_digest": "ab12", "ironspan_try": "5m"},
    ),
    (["rollback", "rack-1", "--list"], "history", {}),
    (["confirm"], "confirm", {}),
    (["confirm", "rack-1", "--revert"], "confirm", {"ironspan_revert": True}),
    (["apply", "--try", "90s"], "try", {"ironspan_try": "90s"}),
    (["apply"], "site", {}),
    (["plan", "site"], "plan", {"ironspan_plan_file": str(pathlib.Path.cwd())}),
    (
        ["plan", "upgrade", "-o", "~/x.json"],
        "plan",
        {"ironspan_planned": "upgrade", "ironspan_plan_file": str(pathlib.Path("~/x.json").expanduser())},
    ),
]


@pytest.mark.parametrize(("line", "name", "given"), CASES)
def test_what_runs(ran: Ran, line: list[str], name: str, given: dict[str, t.Any]) -> None:
    assert main.main([*line, "-i", "somewhere"]) == 0
    ((found, options),) = ran
    assert (found, variables(options)) == (name, given)
    assert options[:2] == ["-i", "somewhere"]


def test_a_plan_can_be_tried(ran: Ran, tmp_path: pathlib.Path) -> None:
    plan = tmp_path / "p.plan.json"
    plan.write_text(json.dumps({"plan": {"operation": "site"}}))
    assert main.main(["apply", str(plan), "--try", "5m"]) == 0
    ((name, options),) = ran
    assert (name, variables(options)) == ("try", {"ironspan_plan": str(plan), "ironspan_try": "5m"})


REFUSED = [
    (["apply", "upgrade", "--try", "5m"], "cannot be tried"),
    (["confirm", "rack-1", "--limit", "rack-2"], "named twice"),
    (["rollback", "rack-1", "--list", "--limit", "rack-2"], "named twice"),
]


@pytest.mark.parametrize(("line", "words"), REFUSED)
def test_refused(ran: Ran, line: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(line) == Exit.BAD_INPUT
    assert words in capsys.readouterr().err
    assert ran == []


def test_only_named_hosts_are_asked(ran: Ran) -> None:
    for line in (["confirm", "a", "b"], ["rollback", "a", "b", "--list"]):
        main.main(line)
        assert ran.pop()[1] == ["--limit", "a,b"]


ANSWER: dict[str, t.Any] = {
    "trial": {"id": "x", "until": 90_000},
    "revisions": [
        {"digest": "a" * 64, "time": 0, "layers": ["base"], "plans": []},
        {"digest": "b" * 64, "time": 60, "layers": ["base", "node"], "plans": ["c" * 64]},
        {"digest": "a" * 64, "time": 120, "layers": ["base"], "plans": [], "undoes": {}},
    ],
    "reports": [{"time": 120, "outcome": "rolled back", "reason": "why", "changes": [1, 2]}],
}


def test_what_was_applied_newest_first() -> None:
    assert lines_of("rack-1", ANSWER) == [
        "rack-1",
        "  on trial until 1970-01-02 01:00:00 UTC",
        "  * aaaaaaaaaaaa  1970-01-01 00:02:00 UTC  base  by a rollback",
        "    bbbbbbbbbbbb  1970-01-01 00:01:00 UTC  base, node  plan cccccccccccc",
        "    aaaaaaaaaaaa  1970-01-01 00:00:00 UTC  base",
        "    1970-01-01 00:02:00 UTC rolled back, 2 changes: why",
    ]
    assert lines_of("bare", {"revisions": [], "reports": []}) == ["bare", "  nothing is kept here yet"]


def test_a_run_keeps_what_hosts_tell() -> None:
    run = Run()
    run.take({"event": "playbook_on_play_start", "event_data": {"name": "p"}})
    for host, result in (("a", ANSWER), ("b", {"changed": False})):
        run.take({"event": "runner_on_ok", "event_data": {"host": host, "task": "t", "res": result}})
    assert run.answers == {"a": ANSWER}
