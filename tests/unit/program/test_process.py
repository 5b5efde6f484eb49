# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A program as a process: when it ends, and what it logs."""

from __future__ import annotations

import logging
import os
import signal

import pytest

from ironspan.program import process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_program_is_told_to_end(number: signal.Signals, handlers_of_signals: None) -> None:
    ending = process.ending()
    assert not ending.is_set()
    os.kill(os.getpid(), number)
    assert ending.wait(120)


@pytest.mark.parametrize(("stream", "begins"), [("8:1", "WARNING"), ("", "20")])
def test_the_time_is_said_where_no_journal_adds_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stream: str, begins: str
) -> None:
    monkeypatch.setenv("JOURNAL_STREAM", stream)
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    try:
        process.log()
        logging.getLogger("test").warning("seen")
        logging.getLogger("azure.core").info("with its headers")
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    told = capsys.readouterr().err
    assert told.startswith(begins)
    assert told.endswith("WARNING seen\n")
    assert "headers" not in told
