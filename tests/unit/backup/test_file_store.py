# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A folder as a store: the cases of every store, crashes, and other processes."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import typing as t

import pytest

from ironspan.backup.file_store import FileStore
from ironspan.backup.store import Store
from ironspan.program.errors import Forbidden, LeaseLost, NotThere, ServiceError
from tests.unit.backup.store_cases import StoreCases, whole


class TestFileStore(StoreCases):
    @pytest.fixture
    def store(self, tmp_path: pathlib.Path) -> Store:
        return FileStore(tmp_path / "backup", "etcd/")


def test_two_prefixes_do_not_see_each_other(tmp_path: pathlib.Path) -> None:
    one, two = FileStore(tmp_path, "one/"), FileStore(tmp_path, "two/")
    one.put("lab/a", [b"x"])
    assert not list(two.list(""))
    assert [item.name for item in one.list("")] == ["lab/a"]


@pytest.mark.parametrize("name", ["", "/a", "a//b", "../a", "a/../b", "a/.hidden", "a/"])
def test_no_name_leads_out_of_the_folder(tmp_path: pathlib.Path, name: str) -> None:
    store = FileStore(tmp_path / "backup")
    with pytest.raises(ServiceError):
        store.put(name, [b"x"])
    assert not list(tmp_path.rglob("*"))


def test_a_lease_that_ran_out_is_taken(tmp_path: pathlib.Path) -> None:
    now = [1000.0]
    store = FileStore(tmp_path, clock=lambda: now[0])
    first = store.acquire("lab/writer", 30, "az-1")
    now[0] += 29
    with pytest.raises(LeaseLost, match="az-1 has the lease"):
        store.acquire("lab/writer", 30, "az-2")
    first.renew()
    now[0] += 31
    second = store.acquire("lab/writer", 30, "az-2")
    with pytest.raises(LeaseLost, match="az-2 has the lease"):
        first.renew()
    second.renew()


def test_an_append_that_a_crash_cut_off_never_was(tmp_path: pathlib.Path) -> None:
    store = FileStore(tmp_path)
    store.create_append("lab/log")
    store.append("lab/log", b"one", 0)
    with (tmp_path / "lab" / "log").open("ab") as file:
        file.write(b"half of wh")
    assert store.size("lab/log") == 3
    assert whole(store, "lab/log") == b"one"
    assert store.append("lab/log", b"two", 3) == 6
    assert whole(store, "lab/log") == b"onetwo"


def test_a_folder_that_may_not_be_written_is_no_reason_to_try_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: t.Any, **__: t.Any) -> t.NoReturn:
        raise PermissionError(13, "Permission denied")

    store = FileStore(tmp_path)
    store.put("lab/a", [b"x"])
    monkeypatch.setattr(pathlib.Path, "unlink", refuse)
    with pytest.raises(Forbidden) as caught:
        store.delete("lab/a")
    assert not caught.value.retryable


def test_a_full_file_system_says_so_and_keeps_what_was_there(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(tmp_path)
    store.create_append("lab/log")
    store.append("lab/log", b"one", 0)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(ServiceError, match="Make room") as caught:
            store.append("lab/log", b"two", 3)
        assert caught.value.retryable
        with pytest.raises(ServiceError, match="No space left"):
            store.put("lab/a", [b"x"])
    assert whole(store, "lab/log") == b"one"
    assert [item.name for item in store.list("")] == ["lab/log"]
    assert store.append("lab/log", b"two", 3) == 6
    with pytest.raises(NotThere):
        store.size("lab/a")


APPENDER = """
import sys
from ironspan.backup.errors import PositionConflict
from ironspan.backup.file_store import FileStore
import pathlib
store = FileStore(pathlib.Path(sys.argv[1]))
mark = sys.argv[2].encode()
position = store.size("lab/log")
for number in range(int(sys.argv[3])):
    while True:
        try:
            position = store.append("lab/log", mark * 100, position)
            break
        except PositionConflict as conflict:
            position = conflict.actual
    print(position, flush=True)
"""


def appender(folder: pathlib.Path, mark: str, count: int) -> subprocess.Popen[str]:
    root = pathlib.Path(__file__).resolve().parents[3]
    return subprocess.Popen(
        [sys.executable, "-c", APPENDER, str(folder), mark, str(count)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )


def test_processes_that_append_at_once_lose_nothing(tmp_path: pathlib.Path) -> None:
    store = FileStore(tmp_path)
    store.create_append("lab/log")
    processes = [appender(tmp_path, mark, 15) for mark in "abc"]
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    data = whole(store, "lab/log")
    blocks = [data[at : at + 100] for at in range(0, len(data), 100)]
    assert sorted(blocks) == sorted([b"a" * 100] * 15 + [b"b" * 100] * 15 + [b"c" * 100] * 15)


def test_what_a_killed_process_was_told_is_there(tmp_path: pathlib.Path) -> None:
    store = FileStore(tmp_path)
    store.create_append("lab/log")
    process = appender(tmp_path, "a", 100_000)
    assert process.stdout is not None
    for _ in range(20):
        acknowledged = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read().split("\n")
    process.wait()
    acknowledged = max([acknowledged, *(int(line) for line in rest[:-1])])
    size = store.size("lab/log")
    assert size in (acknowledged, acknowledged + 100)
    assert whole(store, "lab/log") == b"a" * size
    assert store.append("lab/log", b"b", size) == size + 1
