# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Files of a program: whole or not at all."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file

from ironspan.program import state


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_a_file_has_its_mode_whatever_the_mask_says(tmp_path: Path, mode: int) -> None:
    before = os.umask(0o077)
    try:
        write_file(tmp_path / "file", b"content", mode)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode
    assert (tmp_path / "file").read_bytes() == b"content"


def test_json_can_be_read_again_and_nothing_else_is_left(tmp_path: Path) -> None:
    state.write_json(tmp_path / "file.json", {"a": [1, None]})
    state.write_json(tmp_path / "file.json", {"a": 2})
    assert json.loads((tmp_path / "file.json").read_text()) == {"a": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["file.json"]


def test_what_a_killed_write_left_is_not_continued(tmp_path: Path) -> None:
    left = tmp_path / ".file.new"
    left.write_text("half of something much longer")
    left.chmod(0o666)
    write_file(tmp_path / "file", b"whole", 0o600)
    assert (tmp_path / "file").read_bytes() == b"whole"
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600


def test_a_link_in_the_place_of_the_new_file_is_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("of somebody else")
    (tmp_path / ".file.new").symlink_to(other)
    write_file(tmp_path / "file", b"whole", 0o600)
    assert other.read_text() == "of somebody else"
    assert not (tmp_path / "file").is_symlink()


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(tmp_path / "file", b"former", 0o600)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_file(tmp_path / "file", b"new", 0o600)
    assert (tmp_path / "file").read_bytes() == b"former"
