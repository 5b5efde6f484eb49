# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the artefact tests."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator

import pytest

from ironspan.artifacts import cache

from .stage import GO, Server, file_server


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reach the tests' own servers without the user's proxy, through which real downloads go."""
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def place(tmp_path: pathlib.Path) -> cache.Cache:
    """Return an empty cache."""
    return cache.Cache(tmp_path / "cache")


@pytest.fixture
def server() -> Iterator[Server]:
    """Run a file server."""
    with file_server() as state:
        yield state


@pytest.fixture
def go_log(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Put the stand-in for Go first on PATH; return the file where its calls are noted."""
    folder = tmp_path / "go"
    folder.mkdir()
    (folder / "go").write_text(GO, encoding="utf-8")
    (folder / "go").chmod(0o755)
    log = folder / "log"
    log.touch()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_GO_LOG", str(log))
    return log
