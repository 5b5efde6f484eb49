# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Folders that all labs share, and mounts, that go while another lab looks into them."""

from __future__ import annotations

import subprocess
import typing as t
from pathlib import Path

import pytest

from ironspan.lab import mounts, network, state


class Going:
    """A folder that is there when it is asked for, and gone when it is read."""

    def is_dir(self) -> bool:
        return True

    def iterdir(self) -> t.NoReturn:
        raise FileNotFoundError

    def rmdir(self) -> t.NoReturn:
        raise FileNotFoundError


def test_the_folder_of_all_labs_goes_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "state_root", Going)
    assert state.all_labs() == []


def test_the_folder_of_namespaces_goes_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[list[str]] = []
    monkeypatch.setattr(network, "_FOLDER", Going())
    monkeypatch.setattr(network, "attempt", tried.append)
    network.remove_namespace("islab1-a")
    assert [command[0] for command in tried] == ["umount"]


def test_a_namespace_whose_folder_went_is_made_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[list[str]] = []

    def failed(command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(network, "attempt", failed)
    monkeypatch.setattr(network, "run", made.append)
    network._add_namespace("islab1-a")
    assert made == [["ip", "netns", "add", "islab1-a"]]


def test_a_mount_that_goes_by_itself_is_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    table = [mounts.Mount("/lab/root", "overlay", frozenset())]
    lazily: list[list[str]] = []

    def refused(command: list[str]) -> subprocess.CompletedProcess[str]:
        table.clear()
        return subprocess.CompletedProcess(command, 32)

    monkeypatch.setattr(mounts, "current", lambda: list(table))
    monkeypatch.setattr(mounts, "attempt", refused)
    monkeypatch.setattr(mounts, "run", lazily.append)
    mounts.unmount_below(Path("/lab"))
    assert lazily == []
    table.append(mounts.Mount("/lab/root", "overlay", frozenset()))
    monkeypatch.setattr(mounts, "attempt", lambda command: subprocess.CompletedProcess(command, 32))
    mounts.unmount_below(Path("/lab"))
    assert lazily == [["umount", "--lazy", "/lab/root"]]
