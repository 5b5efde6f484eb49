# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A program as a process: when it ends, what it logs, what it tells systemd."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
from pathlib import Path

import pytest

from ironspan.program import process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_program_is_told_to_end(number: signal.Signals, handlers_of_signals: None) -> None:
    ending = process.ending()
    assert not ending.is_set()
    os.kill(os.getpid(), number)
    assert ending.wait(5)


def test_readiness_reaches_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.settimeout(5)
        heard.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        process.ready()
        assert heard.recv(100) == b"READY=1"


def test_readiness_reaches_an_abstract_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"ironspan-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.settimeout(5)
        heard.bind("\0" + name)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        process.ready()
        assert heard.recv(100) == b"READY=1"


@pytest.mark.parametrize("address", ["", "/nowhere/notify"])
def test_without_systemd_nothing_is_told_and_nothing_fails(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    process.ready()


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
