# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How the doctor's command ends, whatever the run brought."""

from __future__ import annotations

import argparse
import json
import pathlib
import typing as t

import pytest

from ironspan.cli import doctor, playbook, status
from ironspan.cli.main import build_parser
from ironspan.cli.outcome import Exit
from ironspan.cli.report import Failure, Run

REPORT: dict[str, t.Any] = {
    "schema": 1, "kind": "doctor", "site": "lab", "started": "", "seconds": 1.0,
    "healthy": False, "exit_code": 1,
    "asked": {"hosts": 1, "hosts_answered": 1, "api": True, "etcd": True}, "notes": [],
    "checks": [
        {"name": "drift", "reads": "", "verdict": "problem", "because": "",
         "findings": [{"level": "problem", "what": "differs", "remedy": "ironspan apply", "hosts": ["a"]}]},
    ],
}  # fmt: skip


class FakeRun:
    """Stands for a run of the playbook."""

    brings: t.ClassVar[dict[str, t.Any]] = {}
    failures: t.ClassVar[list[Failure]] = []
    code = Exit.FAILED
    arguments: t.ClassVar[list[str]] = []

    def __init__(self, path: pathlib.Path, arguments: list[str], *rest: object) -> None:
        type(self).arguments = arguments
        self.run = Run()
        self.run.results = dict(self.brings)
        self.run.failures = list(self.failures)
        self.output = ["the last line"]
        self.log = "log"
        self.page = "page"

    def execute(self, project: pathlib.Path) -> Exit:
        """End as told."""
        return self.code


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> type[FakeRun]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(playbook, "PlaybookRun", FakeRun)
    monkeypatch.setattr(FakeRun, "brings", {})
    monkeypatch.setattr(FakeRun, "failures", [])
    monkeypatch.setattr(FakeRun, "code", Exit.FAILED)
    return FakeRun


def ran(*words: str) -> int:
    """Run the command."""
    arguments = build_parser().parse_args(list(words))
    return int(arguments.func(arguments))


def test_the_report_says_how_it_ends(
    fake: type[FakeRun], capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    fake.brings = {doctor.DOCTOR: {"report": REPORT}}
    file = tmp_path / "r.json"
    assert ran("doctor", "--plain", "--limit", "a", "--report", str(file)) == 1
    assert fake.arguments[fake.arguments.index("--limit") + 1] == "a,localhost"
    page = capsys.readouterr().out
    assert "lab: 1 problem" in page and "✗ drift: a: differs\n    -> ironspan apply" in page
    assert json.loads(file.read_text()) == REPORT
    fake.brings = {doctor.DOCTOR: {"report": {**REPORT, "exit_code": 4}}}
    assert ran("doctor", "--json", "--limit", "a,localhost") == 4
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["event"] == "doctor" and json.loads(line)["exit_code"] == 4
    assert fake.arguments[fake.arguments.index("--limit") + 1] == "a,localhost"


@pytest.mark.parametrize(
    ("failures", "code", "expected"),
    [
        (
            [Failure("localhost", "failed", "Questions", "Read", "The inventory has problems.")],
            Exit.FAILED,
            2,
        ),
        ([], Exit.BAD_INPUT, 2),
        ([], Exit.INTERRUPTED, 130),
    ],
)
def test_without_a_report(
    failures: list[Failure],
    code: Exit,
    expected: int,
    fake: type[FakeRun],
    capsys: pytest.CaptureFixture[str],
) -> None:
    fake.failures, fake.code = failures, code
    assert ran("doctor", "--plain") == expected
    output = capsys.readouterr().out
    assert "The inventory has problems." in output if failures else "the last line" in output


def test_status_deep_is_the_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[argparse.Namespace] = []

    def run(arguments: argparse.Namespace) -> int:
        seen.append(arguments)
        return 4

    monkeypatch.setattr(doctor, "run", run)
    assert ran("status", "--deep", "-i", "x.yml", "--json") == 4
    # Everything that the doctor reads of its own options is there.
    whole = vars(build_parser().parse_args(["doctor"]))
    assert set(whole) <= set(vars(seen[0])) | {"report", "func"}
    assert seen[0].inventory == ["x.yml"] and seen[0].limit is None
    assert status.run is not doctor.run


def test_commands_can_be_pasted(
    fake: type[FakeRun], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the inventory they would be about the default one's site."""
    fake.brings = {doctor.DOCTOR: {"report": REPORT}}
    arguments = build_parser().parse_args(["doctor", "-i", "inventories/a site", "-i", "more.yml", "--plain"])
    assert doctor.run(arguments) == 1
    assert "-> ironspan apply -i 'inventories/a site' -i more.yml\n" in capsys.readouterr().out
    text = "ironspan plan --limit a, or: ironspan backup accept --allow-destructive; ironspan lab status"
    assert doctor.with_inventory(text, ["x"]) == (
        "ironspan plan -i x --limit a, or: ironspan backup accept -i x --allow-destructive; "
        "ironspan lab status"
    )
    assert doctor.with_inventory(text, []) == text
