# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan access review``: what it asks the playbook for, and how it ends."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ironspan.cli import access_review, playbook
from ironspan.cli.main import build_parser
from ironspan.cli.outcome import Exit
from ironspan.cli.report import Run


class FakeRun:
    """Stands for a run of the playbook."""

    report: t.ClassVar[dict[str, t.Any] | None] = None
    code = Exit.OK
    arguments: t.ClassVar[list[str]] = []

    def __init__(self, path: pathlib.Path, arguments: list[str], *rest: object) -> None:
        assert path.name == "access_review.yml"
        type(self).arguments = arguments
        self.run = Run()
        self.output: list[str] = []
        self.log = "log"
        self.page = "page"
        if self.report is not None:
            self.run.results = {access_review.REVIEW: {"report": self.report, "text": "who can do what"}}

    def execute(self, project: pathlib.Path) -> Exit:
        """End as told."""
        return self.code


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> type[FakeRun]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(playbook, "PlaybookRun", FakeRun)
    monkeypatch.setattr(FakeRun, "report", {"ok": False, "findings": [], "bindings": []})
    monkeypatch.setattr(FakeRun, "code", Exit.OK)
    return FakeRun


def ran(*words: str) -> int:
    arguments = build_parser().parse_args(["access", "review", "--plain", *words])
    return int(arguments.func(arguments))


def asked(fake: type[FakeRun]) -> dict[str, t.Any]:
    return dict(json.loads(fake.arguments[fake.arguments.index("-e") + 1]))


def test_what_it_asks_for(
    fake: type[FakeRun], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        ran("--audit-log", "a.log", "--can", "create", "pods/exec", "-n", "jobs", "--subject", "x") == Exit.OK
    )
    assert asked(fake) == {
        "ironspan_audit_logs": [str(tmp_path / "a.log")],
        "ironspan_can": ["create", "pods/exec"],
        "ironspan_namespace": "jobs",
        "ironspan_subject": "x",
    }


@pytest.mark.parametrize(
    ("words", "ok", "code", "ends"),
    [
        ((), False, Exit.OK, Exit.OK),
        (("--fail-on-findings",), False, Exit.OK, Exit.FAILED),
        (("--fail-on-findings",), True, Exit.OK, Exit.OK),
        (("--fail-on-findings",), False, Exit.HOSTS, Exit.HOSTS),
    ],
)
def test_how_it_ends(
    fake: type[FakeRun],
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    ok: bool,
    code: Exit,
    ends: Exit,
) -> None:
    assert fake.report is not None
    fake.report["ok"], fake.code = ok, code
    assert ran(*words) == ends
    assert "who can do what" in capsys.readouterr().out


def test_the_report_is_written(fake: type[FakeRun], tmp_path: pathlib.Path) -> None:
    assert ran("--report", str(tmp_path / "report.json")) == Exit.OK
    assert json.loads((tmp_path / "report.json").read_text()) == fake.report


def test_without_a_report_there_is_none_to_write(fake: type[FakeRun], tmp_path: pathlib.Path) -> None:
    fake.report, fake.code = None, Exit.BAD_INPUT
    assert ran("--report", str(tmp_path / "report.json"), "--fail-on-findings") == Exit.BAD_INPUT
    assert not (tmp_path / "report.json").exists()


def test_one_json_object_a_line(fake: type[FakeRun], capsys: pytest.CaptureFixture[str]) -> None:
    arguments = build_parser().parse_args(["access", "review", "--json"])
    assert arguments.func(arguments) == Exit.OK
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"event": "access", "ok": False}.items() <= next(
        e for e in events if e["event"] == "access"
    ).items()
