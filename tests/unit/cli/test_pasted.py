# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Printed commands: read as a shell reads them, and run."""

from __future__ import annotations

import itertools
import json
import pathlib
import re
import shlex
import subprocess
import types
import typing as t

import pytest

from ironspan.cli import apply as apply_command
from ironspan.cli import main as frame
from ironspan.cli import pasted, playbook
from ironspan.cli.outcome import Exit
from ironspan.cli.report import VALIDATE, WRITE_PLAN, Run
from tests.unit.plan import samples

STEP = {
    "action": "delete-node", "target": "w1", "what": "delete w1", "arithmetic": "", "disruption": "",
    "seconds": 1, "destructive": True,
}  # fmt: skip


class Runner:
    """In the place of ansible-playbook: writes the plan that it is asked for, and remembers its options."""

    def __init__(self, operation: dict[str, t.Any] | None, needed: int) -> None:
        self.operation, self.needed = operation, needed
        self.calls: list[tuple[str, str, list[str]]] = []

    def __call__(
        self, command: str, name: str, options: list[str], *_more: t.Any, **_named: t.Any
    ) -> tuple[Exit, t.Any]:
        self.calls.append((command, name, options))
        run = Run(clock=lambda: 0.0)
        if command == "plan":
            made = samples.plan(operation=self.operation)
            path = pathlib.Path(self.variables()["ironspan_plan_file"])
            path.write_bytes(made.data)
            run.results[WRITE_PLAN] = {
                "path": str(path), "summary": made.content["summary"], "plan_warnings": [],
                "approvals_needed": self.needed, "destructive": bool(self.operation),
            }  # fmt: skip
        run.results[VALIDATE] = {}
        return Exit.OK, types.SimpleNamespace(run=run, log="x")

    def variables(self) -> dict[str, t.Any]:
        """Return the variables of the last call that were given as JSON."""
        options = self.calls[-1][2]
        found: dict[str, t.Any] = {}
        for option, value in itertools.pairwise(options):
            if option == "-e" and value.startswith("{"):
                found |= json.loads(value)
        return found


@pytest.mark.parametrize(
    "output", ["p.plan.json", "sub/it's my $plan.plan.json", "move.plan", "plan", "/a b"]
)
@pytest.mark.parametrize("operation", [None, {"name": "node_remove", "steps": [STEP], "arguments": {}}])
def test_the_commands_after_a_plan_run_as_they_are_printed(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    output: str,
    operation: dict[str, t.Any] | None,
) -> None:
    here = tmp_path / "where I work"
    (here / "sub").mkdir(parents=True)
    inventory = here / "in ventory"
    inventory.mkdir()
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    target = f"{tmp_path}{output}" if output.startswith("/") else output
    runner = Runner(operation, needed=2)
    monkeypatch.chdir(here)
    monkeypatch.setattr(playbook, "run_playbook", runner)
    given = ["-i", "in ventory", "-e", 'user_note=it\'s; rm -rf "$HOME"']
    assert frame.main(["plan", *given, "-o", target, "--plain"]) == 0
    printed = re.findall(r"^[a-z0-9 ]+: +(ironspan .*)$", capsys.readouterr().out, re.M)
    commands = [shlex.split(line) for line in printed]
    assert [words[1] for words in commands] == ["show", "show", "approve", "apply"]
    # A shell reads them as the same words.
    for line, words in zip(printed, commands, strict=True):
        script = f"ironspan() {{ printf '%s\\n' \"$@\"; }}\n{line}"
        seen = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
        assert seen.splitlines() == words[1:]
    for words in commands:
        extra = ["--key", str(key)] if words[1] == "approve" else []
        assert frame.main([*words[1:], *extra, "--plain"]) == 0, words
    file = (here / target).resolve()
    assert file.is_file() and file.with_name(f"{file.name}.html").is_file()
    assert len(list(file.with_name(f"{file.name}.sig.d").glob("*.sig"))) == 1
    command, name, options = runner.calls[-1]
    assert (command, name) == ("apply", "node_remove" if operation else "site")
    assert runner.variables()["ironspan_plan"] == str(file)
    assert options[:4] == ["-i", str(inventory), "-e", given[3]]
    assert runner.variables().get("ironspan_allow_destructive") is (True if operation else None)


def test_a_plan_of_nothing_is_not_to_be_applied(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = Runner(None, needed=1)
    monkeypatch.setattr(samples, "ANSWER", samples.QUIET)
    monkeypatch.setattr(playbook, "run_playbook", runner)
    assert frame.main(["plan", "-o", str(tmp_path / "p.plan.json"), "--plain"]) == 0
    shown = capsys.readouterr().out
    assert "there is nothing to apply" in shown and "ironspan apply" not in shown


def test_what_is_a_plan_file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("site", "x.json", "move.plan", "own.yml", "-dash.plan"):
        (tmp_path / name).touch()
    names = ("site", "x.json", "move.plan", "own.yml", "./site", "no.plan.json", "upgrade", "no.json")
    found = [name for name in names if apply_command.is_plan(name)]
    assert found == ["x.json", "move.plan", "./site", "no.plan.json"]
    assert pasted.path_from_here(tmp_path / "-dash.plan") == "./-dash.plan"
    assert pasted.path_from_here(tmp_path / "site") == "./site"
    assert pasted.path_from_here(tmp_path.parent / "y") == str(tmp_path.parent / "y")
