# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The three displays."""

from __future__ import annotations

import argparse
import io
import itertools
import json

import pytest

from ironspan.cli import console
from ironspan.cli.console import Console, Mode


def shown(mode: Mode) -> str:
    stream = io.StringIO()
    ticks = itertools.count(0.0, 1.0)
    with Console(mode, stream, clock=lambda: next(ticks)) as display:
        display.phase("artefacts")
        display.step("kubelet", "start", "downloading")
        display.step("kubelet", "done", "80 MB [cached]")
        display.step("etcd", "fail", "wrong digest")
        display.note("that was all")
    return stream.getvalue()


def test_plain_lines_have_no_escape_sequences_and_say_everything() -> None:
    text = shown("plain")
    assert "\x1b" not in text
    lines = text.splitlines()
    assert lines[0].endswith("== artefacts")
    assert "kubelet: 80 MB [cached] (2.0 s)" in lines[2]
    assert "FAIL etcd: wrong digest" in lines[3]
    assert lines[-1] == "that was all"


def test_json_mode_is_one_object_a_line() -> None:
    events = [json.loads(line) for line in shown("json").splitlines()]
    assert [event["event"] for event in events] == ["phase", "step", "step", "step", "note"]
    done = events[2]
    assert (done["name"], done["state"], done["detail"]) == ("kubelet", "done", "80 MB [cached]")
    assert done["seconds"] > 0


def test_live_mode_keeps_brackets_of_the_text() -> None:
    # rich reads [word] as markup unless it is escaped
    assert "[cached]" in shown("live")


def test_notes_are_not_cut_in_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The terminal itself wraps a line; what is in it can then be copied in one piece."""
    monkeypatch.setenv("COLUMNS", "20")
    stream = io.StringIO()
    command = f"ironspan backup restore revision:{2**63 - 1} -i inventories/somewhere"
    Console("live", stream).note(f"    -> {command}")
    assert command in stream.getvalue()


@pytest.mark.parametrize(
    ("flags", "terminal", "mode"),
    [
        ([], True, "live"),
        ([], False, "plain"),
        (["--plain"], True, "plain"),
        (["--json"], True, "json"),
        (["--json", "--plain"], False, "json"),
    ],
)
def test_the_display_follows_options_and_terminal(flags: list[str], terminal: bool, mode: str) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    parser = argparse.ArgumentParser()
    console.add_output_options(parser)
    assert console.from_arguments(parser.parse_args(flags), Stream()).mode == mode


def test_a_command_with_its_own_json_option_keeps_it() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", help="mine")
    console.add_output_options(parser)
    assert parser.parse_args(["--json", "x"]).json == "x"
