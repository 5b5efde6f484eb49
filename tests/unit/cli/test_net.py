# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How the check of the network ends, and what it writes."""

from __future__ import annotations

import json
import pathlib
from xml.etree import ElementTree

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import value_of

from ironspan.cli import net, playbook
from ironspan.cli.outcome import CommandError, Exit
from tests.unit.cli.test_doctor import FakeRun, ran

WAY = {"ms": 30.0, "worst_ms": 31.0, "loss": 0.0, "paths": 2}
REPORT = {
    "schema": 1,
    "kind": "net-check",
    "site": "lab",
    "started": "2026-11-22T10:00:00+00:00",
    "seconds": 1.0,
    "asked": {"hosts": 2, "hosts_answered": 2},
    "healthy": True,
    "exit_code": 0,
    "notes": [],
    "matrix": {"azure": {"on_prem": WAY}},
    "names": {},
    "tables": {},
    "checks": [{"name": "mtu", "findings": []}],
}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> type[FakeRun]:
    """Let no playbook run."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(playbook, "PlaybookRun", FakeRun)
    monkeypatch.setattr(FakeRun, "brings", {net.NET_CHECK: {"report": REPORT}})
    monkeypatch.setattr(FakeRun, "failures", [])
    monkeypatch.setattr(FakeRun, "code", Exit.OK)
    return FakeRun


def test_page_report_and_picture(
    fake: type[FakeRun], capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    report, picture = tmp_path / "r.json", tmp_path / "p.svg"
    words = ("net", "check", "--plain", "--report", str(report), "--picture", str(picture))
    assert ran(*words) == 0
    assert "azure      30.0 ms" in capsys.readouterr().out
    assert json.loads(report.read_text()) == REPORT
    assert ElementTree.fromstring(picture.read_text()).tag.endswith("svg")


def test_without_a_report_there_is_no_picture(fake: type[FakeRun], tmp_path: pathlib.Path) -> None:
    fake.brings, fake.code = {}, Exit.BAD_INPUT
    assert ran("net", "check", "--plain", "--picture", str(tmp_path / "p.svg")) == 2
    assert not (tmp_path / "p.svg").exists()


def test_a_verdict_between_two_endpoints(
    fake: type[FakeRun], capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    answer = {"outcome": "denied", "exit_code": 1, "routes": []}
    fake.brings, fake.code = {net.NET_POLICY: {"report": answer, "text": "a/b -> c/d:80: denied"}}, Exit.OK
    words = (
        "net",
        "check",
        "--plain",
        "--from",
        "a/b",
        "--to",
        "c/d:80",
        "--report",
        str(tmp_path / "r.json"),
    )
    assert ran(*words) == 1
    assert "a/b -> c/d:80: denied" in capsys.readouterr().out
    assert json.loads((tmp_path / "r.json").read_text()) == answer
    fake.brings, fake.code = {}, Exit.BAD_INPUT
    assert ran("net", "check", "--plain", "--from", "a/b", "--to", "c/d:80") == 2


@pytest.mark.parametrize(
    "words", [("--from", "a/b"), ("--to", "a/b:1"), ("--from", "a/b", "--to", "c/d:1", "--picture", "x")]
)
def test_a_connection_has_two_ends_and_no_picture(fake: type[FakeRun], words: tuple[str, ...]) -> None:
    with pytest.raises(CommandError) as caught:
        ran("net", "check", "--plain", *words)
    assert caught.value.code == Exit.BAD_INPUT


def test_routes_are_shown_and_written(
    fake: type[FakeRun], capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    fake.brings = {net.AZURE_ROUTES: {"report": {"resources": []}, "text": "lab-pods: 0 of 400 routes"}}
    fake.code, file = Exit.OK, tmp_path / "routes.json"
    assert ran("net", "routes", "--plain", "--location", "westeurope", "--report", str(file)) == 0
    assert "lab-pods: 0 of 400 routes" in capsys.readouterr().out
    assert json.loads(file.read_text()) == {"resources": []}
    asked = json.loads(fake.arguments[fake.arguments.index("-e") + 1])
    # What is not said holds as it is declared.
    assert asked == {"ironspan_location": "westeurope"}
    assert (value_of({}, "ironspan_table"), value_of({}, "ironspan_managed")) == (None, False)
