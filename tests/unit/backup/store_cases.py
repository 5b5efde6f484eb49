# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What every store does, whatever it is made of. A test class of a store inherits these."""

from __future__ import annotations

import collections.abc
import threading
import time

import pytest

from ironspan.backup.errors import PositionConflict
from ironspan.backup.store import APPEND_MAX, Store
from ironspan.program.errors import AlreadyThere, LeaseLost, NotThere, ServiceError

MIB = 1024 * 1024


def whole(store: Store, name: str) -> bytes:
    return b"".join(store.read(name))


class StoreCases:
    """Inherit, and define the fixture ``store``: an empty store of its own for every test."""

    def test_what_was_put_is_read(self, store: Store) -> None:
        store.put("lab/a", [b"first ", b"", b"second"])
        assert whole(store, "lab/a") == b"first second"
        assert store.size("lab/a") == 12

    def test_an_empty_object(self, store: Store) -> None:
        store.put("lab/a", [])
        assert whole(store, "lab/a") == b""
        assert [item.size for item in store.list("lab/")] == [0]

    def test_a_large_object(self, store: Store) -> None:
        part = bytes(range(256)) * 4096
        store.put("lab/a", (part for _ in range(9)))
        assert store.size("lab/a") == 9 * MIB
        assert whole(store, "lab/a") == part * 9

    def test_put_replaces_nothing(self, store: Store) -> None:
        store.put("lab/a", [b"old"])
        with pytest.raises(AlreadyThere, match="lab/a"):
            store.put("lab/a", [b"new"])
        assert whole(store, "lab/a") == b"old"

    def test_put_that_breaks_off_leaves_nothing(self, store: Store) -> None:
        def broken() -> collections.abc.Iterator[bytes]:
            yield b"x" * (5 * MIB)
            raise RuntimeError("the source broke off")

        with pytest.raises(RuntimeError, match="broke off"):
            store.put("lab/a", broken())
        with pytest.raises(NotThere):
            store.size("lab/a")
        assert not list(store.list("lab/"))
        store.put("lab/a", [b"second try"])
        assert whole(store, "lab/a") == b"second try"

    def test_appends_land_one_behind_the_other(self, store: Store) -> None:
        store.create_append("lab/log")
        assert store.size("lab/log") == 0
        assert store.append("lab/log", b"one", 0) == 3
        assert store.append("lab/log", b"two", 3) == 6
        assert whole(store, "lab/log") == b"onetwo"
        assert store.size("lab/log") == 6
        assert [item.size for item in store.list("lab/")] == [6]

    def test_the_largest_append(self, store: Store) -> None:
        store.create_append("lab/log")
        data = b"x" * APPEND_MAX
        assert store.append("lab/log", data, 0) == APPEND_MAX
        with pytest.raises(ServiceError) as caught:
            store.append("lab/log", data + b"y", APPEND_MAX)
        assert not caught.value.retryable
        assert store.size("lab/log") == APPEND_MAX

    @pytest.mark.parametrize("position", [0, 2, 4])
    def test_an_append_elsewhere_is_refused(self, store: Store, position: int) -> None:
        store.create_append("lab/log")
        store.append("lab/log", b"one", 0)
        with pytest.raises(PositionConflict) as caught:
            store.append("lab/log", b"two", position)
        assert caught.value.actual == 3
        assert whole(store, "lab/log") == b"one"

    def test_an_append_whose_answer_was_lost_is_sent_again(self, store: Store) -> None:
        store.create_append("lab/log")
        store.append("lab/log", b"one", 0)
        with pytest.raises(PositionConflict) as caught:
            store.append("lab/log", b"one", 0)
        assert caught.value.actual == 3
        assert b"".join(store.read("lab/log", 0, 3)) == b"one"

    def test_create_append_replaces_nothing(self, store: Store) -> None:
        store.create_append("lab/log")
        store.append("lab/log", b"one", 0)
        with pytest.raises(AlreadyThere):
            store.create_append("lab/log")
        with pytest.raises(AlreadyThere):
            store.put("lab/log", [b"two"])
        assert whole(store, "lab/log") == b"one"

    def test_what_was_put_is_not_appended_to(self, store: Store) -> None:
        store.put("lab/a", [b"one"])
        with pytest.raises(AlreadyThere):
            store.create_append("lab/a")
        with pytest.raises(ServiceError) as caught:
            store.append("lab/a", b"two", 3)
        assert not caught.value.retryable
        assert whole(store, "lab/a") == b"one"

    def test_of_two_writers_at_one_position_one_lands(self, store: Store) -> None:
        store.create_append("lab/log")
        landed: list[bytes] = []
        refused: list[int] = []

        def write(data: bytes) -> None:
            try:
                store.append("lab/log", data, 0)
                landed.append(data)
            except PositionConflict as conflict:
                refused.append(conflict.actual)

        threads = [threading.Thread(target=write, args=(b"%d" % number * 1000,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(landed) == 1
        assert refused == [1000] * 7
        assert whole(store, "lab/log") == landed[0]

    def test_a_part_of_an_object(self, store: Store) -> None:
        store.put("lab/a", [b"0123456789"])
        assert b"".join(store.read("lab/a", 3, 4)) == b"3456"
        assert b"".join(store.read("lab/a", 3)) == b"3456789"
        assert b"".join(store.read("lab/a", 8, 40)) == b"89"
        assert b"".join(store.read("lab/a", 10, 5)) == b""
        assert b"".join(store.read("lab/a", 12)) == b""

    def test_what_is_not_there(self, store: Store) -> None:
        for ask in (
            lambda: store.size("lab/a"),
            lambda: whole(store, "lab/a"),
            lambda: store.append("lab/a", b"x", 0),
            lambda: store.delete("lab/a"),
        ):
            with pytest.raises(NotThere) as caught:
                ask()
            assert "lab/a" in str(caught.value)
            assert not caught.value.retryable

    def test_list_is_by_prefix_and_sorted(self, store: Store) -> None:
        for name in ("lab/b/2", "lab/a/10", "lab/b/1", "lab2/a", "lab/a-1", "lab/a/9"):
            store.put(name, [b"x"])
        assert [item.name for item in store.list("lab/")] == [
            "lab/a-1",
            "lab/a/10",
            "lab/a/9",
            "lab/b/1",
            "lab/b/2",
        ]
        assert [item.name for item in store.list("lab/a/1")] == ["lab/a/10"]
        assert not list(store.list("lab/c"))
        assert not list(store.list("other/"))

    def test_list_tells_size_and_times(self, store: Store) -> None:
        before = time.time()
        store.put("lab/a", [b"12345"])
        (item,) = store.list("lab/a")
        assert item.size == 5
        # Services round to seconds, and their clock is not ours.
        assert abs(item.modified - before) < 120
        assert abs(item.created - before) < 120

    def test_a_deleted_object_is_gone(self, store: Store) -> None:
        store.put("lab/a", [b"x"])
        store.create_append("lab/log")
        store.append("lab/log", b"y", 0)
        store.delete("lab/a")
        store.delete("lab/log")
        assert not list(store.list("lab/"))
        store.put("lab/log", [b"now whole"])
        assert whole(store, "lab/log") == b"now whole"
        assert store.size("lab/log") == 9

    def test_a_lease_has_one_holder(self, store: Store) -> None:
        lease = store.acquire("lab/writer", 15, "az-1")
        with pytest.raises(LeaseLost) as caught:
            store.acquire("lab/writer", 15, "az-2")
        assert not caught.value.retryable
        lease.renew()
        with pytest.raises(LeaseLost):
            store.acquire("lab/writer", 15, "az-2")

    def test_a_released_lease_is_taken_by_another(self, store: Store) -> None:
        first = store.acquire("lab/writer", 60, "az-1")
        first.release()
        second = store.acquire("lab/writer", 60, "az-2")
        assert first.id != second.id
        with pytest.raises(LeaseLost):
            first.renew()
        first.release()
        second.renew()
        second.release()

    @pytest.mark.parametrize("seconds", [14, 61, 0, -1])
    def test_no_lease_is_shorter_or_longer_than_the_service_knows(self, store: Store, seconds: int) -> None:
        with pytest.raises(ServiceError):
            store.acquire("lab/writer", seconds, "az-1")

    def test_of_many_that_ask_one_gets_the_lease(self, store: Store) -> None:
        held: list[str] = []
        lost: list[str] = []

        def ask(holder: str) -> None:
            try:
                store.acquire("lab/writer", 15, holder)
                held.append(holder)
            except LeaseLost:
                lost.append(holder)

        threads = [threading.Thread(target=ask, args=(f"az-{number}",)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(held) == 1
        assert len(lost) == 5
