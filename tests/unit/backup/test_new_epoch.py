# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A restore begins the next epoch once, however often it is told to."""

from __future__ import annotations

import collections.abc
from pathlib import Path

import pytest

from ironspan.backup.file_store import FileStore
from ironspan.backup.manifest import Epoch, Restored, dump, load
from ironspan.backup.names import Names
from ironspan.backup.new_epoch import begin
from ironspan.program.errors import ProgramError, ServiceError
from tests.support.backup_proof import proof

NAMES = Names("lab", proof())
RESTORED = Restored("newest", 70, 10**9, 0)


class LostAnswers(FileStore):
    """Does what it is asked and says once that it failed."""

    failed = False

    def put(self, name: str, data: collections.abc.Iterable[bytes]) -> None:
        super().put(name, data)
        if not self.failed:
            self.failed = True
            raise ServiceError("the connection was cut", retryable=True)


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path, "")


def test_the_next_epoch_is_of_the_new_cluster(store: FileStore) -> None:
    store.put(NAMES.epoch(1), [dump(Epoch(1, "aa", 5), NAMES.epoch(1), NAMES.proof)])
    made = begin(store, NAMES, "bb", RESTORED, 9.5)
    assert made == Epoch(2, "bb", 9, Restored("newest", 70, 10**9, 1))
    assert load(Epoch, b"".join(store.read(NAMES.epoch(2))), NAMES.epoch(2), NAMES.proof) == made
    assert begin(store, NAMES, "bb", RESTORED, 20) == made
    assert begin(store, NAMES, "cc", RESTORED, 20).epoch == 3
    assert begin(store, NAMES, "cc", Restored("disk", 60, 0, 0), 20).epoch == 4


def test_a_store_without_backups_gets_its_first_epoch(store: FileStore) -> None:
    made = begin(store, NAMES, "bb", RESTORED, 1)
    assert (made.epoch, made.restored) == (1, RESTORED)


def test_an_answer_that_was_lost_makes_no_second_epoch(tmp_path: Path) -> None:
    store = LostAnswers(tmp_path, "")
    with pytest.raises(ServiceError):
        begin(store, NAMES, "bb", RESTORED, 1)
    assert begin(store, NAMES, "bb", RESTORED, 2).epoch == 1
    assert len(list(store.list(NAMES.epochs))) == 1


@pytest.mark.parametrize("cluster", ["", "0xbb", "BB", "1" * 17, "bb\n"])
def test_what_is_no_cluster_is_refused(store: FileStore, cluster: str) -> None:
    with pytest.raises(ProgramError, match="is no id of a cluster"):
        begin(store, NAMES, cluster, RESTORED, 1)
