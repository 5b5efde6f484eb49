# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The command line: what it passes on, what it prints, how it ends."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from ironspan.cli.main import main
from ironspan.lab import Lab, cli, report
from ironspan.lab.errors import LabError

LINK: dict[str, Any] = {
    "settings": {"rtt_s": 0.03, "jitter_s": 0.002, "loss": 0.001, "rate_bit_s": 5e8, "seed": 1, "cut": False},
    "counters": {
        "azure_to_rack": {
            "offered_packets": 10, "offered_bytes": 1000, "delivered_packets": 8, "delivered_bytes": 800,
            "lost_packets": 2, "overflow_packets": 0, "cut_packets": 0, "refused_packets": 0,
            "in_flight_packets": 0, "in_flight_bytes": 0,
        }
    },
}  # fmt: skip
FOUND: dict[str, Any] = {
    "name": "default",
    "exists": True,
    "labs": ["default"],
    "machine": {
        "kernel": "6.12", "cpus": 2, "memory_bytes": 2**34, "cgroup_version": 1, "launcher": "cgroup",
        "missing_programs": [],
    },
    "concessions": [{"what": "cgroup v1", "effect": "failCgroupV1 is false"}],
    "warnings": ["bridged packets"],
    "base_image": {"path": "/cache/base", "built": True},
    "hosts": [
        {"name": "az-1", "site": "azure", "address": "10.98.0.11", "pid": 5, "init_pid": 6, "ssh": True},
        {"name": "r-1", "site": "rack", "address": "10.98.1.11", "pid": None, "init_pid": None, "ssh": False},
    ],
    "link": {**LINK, "pid": 4, "mtu": 1400},
    "dns": {"10.98.0.1": True},
    "azure": {
        "installed": True, "ready": False, "url": "https://labstore.example", "address": "10.98.0.253",
        "faults": [],
    },
    "bare_metal": {
        "ironic": {"url": "http://10.98.1.1:6385", "pid": None},
        "bmcs": 7,
        "servers": [
            {"name": "server-1", "bmc": "10.98.1.211", "address": "10.98.1.201", "on": True, "console": "/c"}
        ],
    },
    "mirror": {"folder": "/m", "filled": False, "serving": {"http://10.98.0.1:8080": False}},
    "inventory": "/state/inventory/hosts.yml",
    "up": False,
}  # fmt: skip


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, Any]]:
    """What the commands ask of the lab: (lab, method, arguments)."""
    seen: list[tuple[str, str, Any]] = []

    def record(method: str, answer: Any) -> None:
        def call(lab: Lab, *given: Any, **named: Any) -> Any:
            named.pop("progress", None)
            seen.append((lab.name, method, (*given, named) if named else given))
            return answer

        monkeypatch.setattr(Lab, method, call)

    record("up", None)
    record("down", None)
    record("status", copy.deepcopy(FOUND))
    record("link", LINK)
    return seen


@pytest.mark.parametrize(
    ("line", "size"),
    [
        ("up", (None, None)),
        ("up --size tiny", (1, 1)),
        ("up --size small", (3, 2)),
        ("up --azure 4 --rack 9", (4, 9)),
        ("up --size small --rack 7", (3, 7)),
        ("up --azure 0", (0, None)),
    ],
)
def test_sizes(calls: list[tuple[str, str, Any]], line: str, size: tuple[int | None, int | None]) -> None:
    assert main(["lab", *line.split()]) == 0
    assert calls[0][:2] == ("default", "up")
    assert calls[0][2][:2] == size


@pytest.mark.parametrize(
    ("line", "size", "members"),
    [
        ("up --azure estate", (None, None), 3),
        ("up --azure estate --size tiny", (None, 1), 1),
        ("up --azure estate --rack 1", (None, 1), 3),
    ],
)
def test_an_estate(
    calls: list[tuple[str, str, Any]], line: str, size: tuple[int | None, int | None], members: int
) -> None:
    assert main(["lab", *line.split()]) == 0
    arguments, options = calls[0][2][:2], calls[0][2][-1]
    assert (arguments, options["estate"]) == (size, members)


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        (
            "link set --rtt 30ms --jitter 2ms --loss 0.1% --rate 500mbit",
            {"rtt_s": 0.03, "jitter_s": 0.002, "loss": 0.001, "rate_bit_s": 5e8},
        ),
        ("link set --rate 0 --seed 3", {"rate_bit_s": 0.0, "seed": 3}),
        ("link cut", {"cut": True}),
        ("link heal", {"cut": False}),
        ("link show", None),
    ],
)
def test_link_changes(calls: list[tuple[str, str, Any]], line: str, changes: dict[str, Any] | None) -> None:
    assert main(["lab", *line.split(), "--name", "t9"]) == 0
    assert calls[0][:2] == ("t9", "link")
    assert calls[0][2] == (() if changes is None else (pytest.approx(changes),))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("link set", "nothing to set"),
        ("link set --rtt 30", "for example 30ms"),
        ("link set --loss 200%", "more than every packet"),
        ("up --name A-b", "lower-case letters"),
        ("up --azure estate --no-azure-services", "made in the emulated Azure"),
        ("ssh az-1", "there is no lab 'default'"),
    ],
)
def test_bad_input_ends_with_2_and_says_what_to_write(
    capsys: pytest.CaptureFixture[str], line: str, words: str
) -> None:
    assert main(["lab", *line.split()]) == 2
    assert words in capsys.readouterr().err


def test_failed_step_ends_with_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise LabError("host az-1 does not answer", exit_code=1)

    monkeypatch.setattr(Lab, "up", fail)
    assert main(["lab", "up"]) == 1
    assert "host az-1 does not answer" in capsys.readouterr().err


def test_status_for_people(calls: list[tuple[str, str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "status"]) == 4  # r-1 is off
    shown = capsys.readouterr().out
    for part in (
        "cgroup v1: failCgroupV1 is false", "warning: bridged packets", "NOT WHOLE", "10.98.0.11", "OFF",
        "RTT 30 ms, jitter 2 ms, loss 0.1 %, 500 Mbit/s", "8 of 10 packets", "2 lost", "MTU 1400",
        "ironspan artifacts build", "emulated Azure https://labstore.example (10.98.0.253): no answer",
        "Ironic http://10.98.1.1:6385: DOES NOT RUN", "server-1 BMC 10.98.1.211, power on, 10.98.1.201 once",
    ):  # fmt: skip
        assert part in shown


def test_status_for_programs(calls: list[tuple[str, str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    main(["lab", "status", "--json"])
    assert json.loads(capsys.readouterr().out) == FOUND


def test_status_without_a_lab_still_explains_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "status"]) == 0
    shown = capsys.readouterr().out
    assert "differs from production" in shown
    assert "not up; labs here: none" in shown


def test_link_that_is_cut_cannot_be_overlooked() -> None:
    reply = copy.deepcopy(LINK)
    reply["settings"] |= {"cut": True, "rate_bit_s": 0.0}
    assert cli.link_text(reply).startswith("link CUT: RTT 30 ms")
    assert "no rate limit" in cli.link_text(reply)


@pytest.mark.parametrize("line", ["az-1 ls -l /", "az-1 -- ls -l /"])
def test_ssh_becomes_the_real_program(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    class Replaced(Exception):
        """The process is another program now."""

    def execvp(_: str, command: list[str]) -> None:
        raise Replaced(" ".join(command))

    monkeypatch.setattr(Lab, "ssh_command", lambda _, name, command: ["ssh", f"root@{name}", *command])
    monkeypatch.setattr("os.execvp", execvp)
    with pytest.raises(Replaced, match=r"^ssh root@az-1 ls -l /$"):
        main(["lab", "ssh", *line.split()])


def test_report_of_a_port_nobody_listens_on() -> None:
    assert report.answers("127.0.0.1", 1, 0.2) is None
