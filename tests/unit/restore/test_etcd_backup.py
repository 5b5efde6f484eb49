# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the module makes of the answers of the backup program, with a program that answers so."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.modules import etcd_backup

from tests.unit.restore.modules import run_module


def program(folder: Path, body: str) -> str:
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_the_answer_is_returned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = program(tmp_path, 'echo "reading" >&2; printf \'{"words": "%s"}\' "$*"')
    result = run_module(etcd_backup, capsys, verb="list", arguments=["--all"], program=path)
    assert result["answer"] == {"words": "list --all --json"}
    assert result["changed"] is False


@pytest.mark.parametrize(
    ("body", "refused", "says"),
    [
        ("echo 'the key version 3 is missing' >&2; exit 2", True, "list: the key version 3 is missing"),
        ("echo reading >&2; echo 'the store does not answer' >&2; exit 1", False, "store does not answer"),
        (
            'echo \'{"error": {"message": "A gap.", "remedy": "Take another."}}\'; echo no >&2; exit 2',
            True,
            "list: A gap. Take another.",
        ),
        ("exit 1", False, "gave no reason"),
        ("echo words", False, "is no JSON: 'words"),
    ],
)
def test_failures_are_told(
    body: str, refused: bool, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run_module(etcd_backup, capsys, verb="list", program=program(tmp_path, body))
    assert result["failed"]
    assert result["refused"] is refused
    assert says in result["msg"]


def test_without_the_program_nothing_is_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = run_module(etcd_backup, capsys, verb="list", program=str(tmp_path / "none"))
    assert result["failed"]
    assert result["refused"]
    assert "Let site.yml install it" in result["msg"]


def test_a_check_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = program(tmp_path, f"touch {tmp_path}/done; echo '{{}}'")
    result = run_module(etcd_backup, capsys, check=True, verb="drill", changes=True, program=path)
    assert result["changed"]
    assert not (tmp_path / "done").exists()
    assert run_module(etcd_backup, capsys, check=True, verb="list", program=path)["answer"] == {}
