# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""`ironspan lab store`: what it commands, what it prints."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from ironspan.cli.main import main
from ironspan.lab.azure import cli, client, tokens
from ironspan.lab.azure.config import state_folder
from ironspan.lab.azure.control import Control
from ironspan.lab.azure.world import World
from ironspan.lab.errors import LabError
from ironspan.lab.state import lab_folder

ENDPOINTS = {"store": ["10.98.0.253", 443], "arc": ["10.98.0.253", 40342]}


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Control:
    """The commands of the lab t9 are carried out here, without a process."""
    one = Control(World(tmp_path / "azure"), {"ready": True, "endpoints": ENDPOINTS})

    def request(folder: Path, do: str, **arguments: Any) -> dict[str, Any]:
        assert folder == state_folder(lab_folder("t9"))
        reply = one.answer({"do": do, **arguments})
        if "error" in reply:
            raise LabError(f"refused: {reply['error']}")
        return json.loads(json.dumps(reply))  # type: ignore[no-any-return]

    monkeypatch.setattr(client, "request", request)
    return one


def run(line: str) -> int:
    command, *rest = line.split()
    return main(["lab", "store", command, "--name", "t9", *rest])


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (
            "fault outage",
            {"kind": "outage", "service": "store", "method": "", "count": None, "probability": 1},
        ),
        (
            "fault status --status 429 --retry-after 2.5 --method PUT --prefix /etcd/ --count 3",
            {"status": 429, "retry_after": 2.5, "method": "PUT", "prefix": "/etcd/", "count": 3},
        ),
        ("fault slow --rate 2k --comp appendblock", {"rate_bytes_s": 2000.0, "comp": "appendblock"}),
        ("fault truncated --after 100", {"after_bytes": 100}),
        ("fault delay --delay 0.5 --service login", {"delay_s": 0.5, "service": "login"}),
        ("fault reset --probability 0.1 --seed 7", {"probability": 0.1, "seed": 7}),
    ],
)
def test_faults(control: Control, line: str, fields: dict[str, Any]) -> None:
    assert run(line) == 0
    (fault,) = control.answer({"do": "status"})["faults"]
    assert {name: fault[name] for name in fields} == fields


def test_healing(control: Control, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        run("fault outage")
    run("heal 2")
    assert [one["id"] for one in control.answer({"do": "status"})["faults"]] == [1, 3]
    run("heal")
    assert control.answer({"do": "status"})["faults"] == []
    assert capsys.readouterr().out.endswith("1 healed\n2 healed\n")


def test_policies(control: Control, capsys: pytest.CaptureFixture[str]) -> None:
    run("policy --days 7 --append append --lock --hold case-1 --versioning on")
    seen = control.answer({"do": "status"})
    assert seen["containers"]["etcd"]["policy"]["locked"] is True
    assert seen["containers"]["etcd"]["holds"] == ["case-1"]
    assert seen["versioning"] is True
    assert "7 days, locked, protected append writes: append; legal hold case-1" in capsys.readouterr().out
    run("policy --remove --hold none")
    assert "etcd: no policy" in capsys.readouterr().out


def test_status_for_people(control: Control, capsys: pytest.CaptureFixture[str]) -> None:
    run("fault status --probability 0.5 --seed 3 --count 9")
    run("clock 36h")
    run("policy --days 2")
    capsys.readouterr()
    assert run("status") == 0
    shown = capsys.readouterr().out
    for part in (
        "store: ready, account labstore", "arc        10.98.0.253:40342", "versions: not kept",
        "36 h ahead", "container etcd: 2 days, unlocked",
        "fault 1: status, store each method /*, status 503, probability 0.5, seed 3, 9 more, 0 hit so far",
    ):  # fmt: skip
        assert part in shown


def test_status_for_programs(control: Control, capsys: pytest.CaptureFixture[str]) -> None:
    run("status --json")
    assert json.loads(capsys.readouterr().out) == control.answer({"do": "status"})


def test_requests(control: Control, capsys: pytest.CaptureFixture[str]) -> None:
    control._world.note("store", "PUT", "/etcd/a", "appendblock", 201, "writer")
    control._world.note("store", "GET", "/etcd/b", "", 0, "-")
    run("requests --last 1")
    shown = capsys.readouterr().out
    assert "/etcd/b" in shown
    assert "cut" in shown
    assert "/etcd/a" not in shown


@pytest.mark.parametrize("line", ["clock 8", "clock soon", "policy --append all", "fault slow --rate x"])
def test_nonsense_ends_with_2(control: Control, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(line) == 2
    assert "write" in (said := capsys.readouterr().err) or "give" in said


def test_a_lab_without_the_service_is_told_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("status") == 1
    assert "ironspan lab up" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("90s", 90), ("2m", 120), ("36h", 129600), ("1.5d", 129600)]
)
def test_offsets(text: str, seconds: float) -> None:
    assert cli.parse_offset(text) == seconds


def test_tokens_of_people(control: Control, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("person anna --role Researchers --role Auditors") == 0
    claims = tokens.verify(capsys.readouterr().out.strip(), keys(control), time.time())
    assert claims["roles"] == ["Researchers", "Auditors"]
    assert run("person anna --fault expired") == 0
    with pytest.raises(tokens.Refused, match="expired"):
        tokens.verify(capsys.readouterr().out.strip(), keys(control), time.time())
    assert run("person anna --fault nonsense") != 0
    assert "write one of wrong_tenant" in capsys.readouterr().err


def test_a_new_key(control: Control, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("rotate") == 0
    assert capsys.readouterr().out == "a new key signs; 2 are published\n"
    assert run("rotate --withdraw --json") == 0
    assert json.loads(capsys.readouterr().out) == {"keys": 1}


def keys(control: Control) -> list[dict[str, str]]:
    return control._world.keys()
