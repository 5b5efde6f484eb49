# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The state file is whole at every moment, the locks keep others out and can be deleted."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import pytest

from ironspan.lab import files, state
from ironspan.lab.errors import LabError
from ironspan.lab.layout import Layout
from ironspan.lab.state import Resource


def test_what_is_recorded_is_on_disk_at_once_and_once() -> None:
    made = state.create("a", 1, 1, 1400, set())
    made.record([Resource("link", "isa0"), Resource("mount", "/x")])
    made.record([Resource("mount", "/x"), Resource("link", "isr0")])
    again = state.load("a")
    assert again == made
    assert again is not None
    assert again.resources == [Resource("link", "isa0"), Resource("mount", "/x"), Resource("link", "isr0")]


def test_records_of_many_threads_are_all_kept() -> None:
    made = state.create("a", 1, 1, 1400, set())
    threads = [threading.Thread(target=made.record, args=([Resource("link", str(n))],)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    again = state.load("a")
    assert again is not None
    assert {r.name for r in again.resources} == {str(n) for n in range(20)}


def test_absent_lab_is_none_and_a_damaged_one_an_error(private_folders: Path) -> None:
    assert state.load("a") is None
    (private_folders / "a").mkdir(parents=True)
    assert state.load("a") is None
    (private_folders / "a/state.json").write_text("{")
    with pytest.raises(LabError, match=r"state\.json"):
        state.load("a")
    (private_folders / "a/state.json").write_text(json.dumps({"schema": 99}))
    with pytest.raises(LabError, match="schema 99"):
        state.load("a")


def test_each_lab_gets_the_lowest_index_that_is_free() -> None:
    assert state.create("a", 1, 1, 1400, set()).layout.index == 1
    assert state.create("b", 1, 1, 1400, {2, 3}).layout.index == 4
    assert state.create("c", 1, 1, 1400, set()).layout.index == 2
    assert state.create("default", 1, 1, 1400, set()).layout.index == 0
    assert state.all_labs() == ["a", "b", "c", "default"]


def test_no_index_left_is_said() -> None:
    with pytest.raises(LabError, match="all lab networks"):
        state.create("a", 1, 1, 1400, set(range(16)))


def test_bad_size_leaves_no_folder(private_folders: Path) -> None:
    with pytest.raises(LabError, match="--azure 0"):
        state.create("a", 0, 1, 1400, set())
    assert state.all_labs() == []
    state.tidy_root()
    assert not private_folders.exists()


def test_root_stays_while_a_lab_is_there_and_goes_with_the_last(private_folders: Path) -> None:
    made = state.create("a", 1, 1, 1400, set())
    state.tidy_root()
    assert made.folder.is_dir()
    (made.folder / "state.json").unlink()
    made.folder.rmdir()
    state.tidy_root()
    assert not private_folders.exists()
    state.tidy_root()


def test_lab_without_its_first_state_file_does_not_hinder_others(private_folders: Path) -> None:
    (private_folders / "half").mkdir(parents=True)
    assert state.create("a", 1, 1, 1400, set()).layout == Layout("a", 1, 1, 1)


def test_write_atomic_leaves_the_old_content_when_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "f"
    files.write_atomic(target, "old", 0o600)
    assert target.stat().st_mode & 0o777 == 0o600

    def broken(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="No space"):
        files.write_atomic(target, "new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_write_if_changed_writes_only_then(tmp_path: Path) -> None:
    target = tmp_path / "f"
    assert files.write_if_changed(target, "a")
    inode = target.stat().st_ino
    assert not files.write_if_changed(target, "a")
    assert target.stat().st_ino == inode
    assert files.write_if_changed(target, "a", 0o600)
    assert target.stat().st_mode & 0o777 == 0o600
    assert files.write_if_changed(target, "b", 0o600)


def test_busy_lock_is_an_error_with_the_given_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_PATIENCE_S", 0.1)
    path = tmp_path / "lock"
    with (
        files.locked(path),
        pytest.raises(LabError, match="somebody else"),
        files.locked(path, "somebody else"),
    ):
        pytest.fail("two held the lock")
    with files.locked(path, "somebody else"):
        pass


def test_lock_held_only_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = files.Lock(path)
    assert holder.acquire()
    threading.Timer(0.1, holder.release).start()
    with files.locked(path, "busy"):
        pass


def waiting_for(inode: int) -> int:
    """Count who waits for the lock of a file: proc_locks(5) marks them with an arrow."""
    lines = Path("/proc/locks").read_text().splitlines()
    return sum(" -> " in line and f":{inode} " in line for line in lines)


def test_waiting_for_a_lock_that_is_deleted_does_not_let_two_in(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "lock"
    first = files.Lock(path)
    assert first.acquire()
    inside: list[str] = []

    def worker(name: str) -> None:
        with files.locked(path) as lock:
            inside.append(name)
            assert len(inside) == 1
            time.sleep(0.02)
            lock.forget()
            inside.remove(name)

    threads = [threading.Thread(target=worker, args=(str(n),)) for n in range(6)]
    inode = path.stat().st_ino
    for thread in threads:
        thread.start()
    # Who has not opened the file yet would make the folder again as soon as it is gone.
    deadline = time.monotonic() + 120
    while waiting_for(inode) < len(threads):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    first.forget()
    path.parent.rmdir()
    first.release()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)


def test_a_lab_of_an_older_release_is_read_as_one_with_services(private_folders: Path) -> None:
    state.create("a", 1, 1, 1400, set(), azure_services=False)
    path = private_folders / "a/state.json"
    document = json.loads(path.read_text())
    first = state.load("a")
    assert first is not None
    assert (first.azure_services, first.etcd_backup) == (False, False)
    del document["azure_services"], document["etcd_backup"]
    path.write_text(json.dumps(document))
    old = state.load("a")
    assert old is not None
    assert (old.azure_services, old.etcd_backup) == (True, False)


def test_a_lab_with_an_estate_stays_one() -> None:
    made = state.create("a", 0, 1, 1400, set(), estate=3)
    assert state.load("a") == made
    assert (made.layout.estate, made.layout.azure, [one.name for one in made.layout.hosts]) == (
        3,
        0,
        ["rack-1"],
    )
