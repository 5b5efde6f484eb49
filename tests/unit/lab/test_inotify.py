# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The allowance of inotify instances: raised for the labs, given back by the last one."""

from __future__ import annotations

from pathlib import Path

import pytest

from ironspan.lab import inotify


@pytest.fixture
def setting(tmp_path: Path, private_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in place of the machine's setting, and one lab."""
    path = tmp_path / "max_user_instances"
    path.write_text("128\n")
    monkeypatch.setattr(inotify, "SETTING", path)
    (private_folders / "one").mkdir(parents=True)
    return path


def test_raised_and_given_back_by_the_last_lab(setting: Path, private_folders: Path) -> None:
    """A second `up` keeps the first value on record; a lab that is left keeps the allowance."""
    assert inotify.ensure()
    assert not inotify.ensure()
    assert int(setting.read_text()) == inotify.ENOUGH
    inotify.restore()
    assert int(setting.read_text()) == inotify.ENOUGH
    (private_folders / "one").rmdir()
    inotify.restore()
    assert int(setting.read_text()) == 128
    assert [entry.name for entry in private_folders.iterdir()] == [".index.lock"]


def test_killed_between_record_and_change(setting: Path) -> None:
    """The record of a killed `up` is not overwritten by the next one."""
    inotify.ensure()
    setting.write_text("256\n")
    inotify.ensure()
    assert inotify._former().read_text() == "128\n"


@pytest.mark.parametrize("value", [inotify.ENOUGH, 8192])
def test_enough_is_left_alone(setting: Path, private_folders: Path, value: int) -> None:
    """Nothing is recorded or written where the machine allows enough."""
    setting.write_text(f"{value}\n")
    assert not inotify.ensure()
    (private_folders / "one").rmdir()
    inotify.restore()
    assert int(setting.read_text()) == value


def test_somebody_elses_value_stays(setting: Path, private_folders: Path) -> None:
    """What an administrator wrote while labs were up is not undone."""
    inotify.ensure()
    setting.write_text("4096\n")
    (private_folders / "one").rmdir()
    inotify.restore()
    assert int(setting.read_text()) == 4096
