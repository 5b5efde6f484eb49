# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A host that is no member does the drills: when its timer asks, within its unit's limits, and alone."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import time
from collections.abc import Iterator

import pytest

from ironspan.backup import settings
from ironspan.backup.agent import run
from ironspan.backup.file_store import FileStore
from ironspan.backup.main import main
from ironspan.backup.rebuild import drills, scratch
from ironspan.program.leader import Lease
from tests.support.backup_log import NAMES, PlainKeys, add_epoch, add_snapshot, add_verdict
from tests.support.backup_proof import proof_settings
from tests.unit.backup.test_settings import GOOD


class Site:
    """A host with a store in a folder, whose drills are only noted."""

    def __init__(self, folder: pathlib.Path, elsewhere: bool) -> None:
        self.store = FileStore(folder / "store", "")
        self.file = folder / "settings.json"
        told = {
            "site": NAMES.site,
            "stores": [{"kind": "file", "path": str(folder / "store")}],
            "drill": {**GOOD["drill"], "elsewhere": elsewhere},
            "proof": proof_settings(folder / "signing"),
        }
        self.file.write_text(json.dumps(GOOD | told))
        self.drilled: list[str] = []

    def main(self, *arguments: str) -> int:
        """Run the program."""
        return main([*arguments, "--settings", str(self.file)])


@pytest.fixture
def site(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    (tmp_path / "store").mkdir()
    made = Site(tmp_path, elsewhere=False)

    def drill(self: drills.Drills, snapshot: str, lease: Lease) -> int:
        made.drilled.append(snapshot)
        add_verdict(made.store, snapshot, True, unix=int(time.time()))
        return 0

    monkeypatch.setattr(drills.Drills, "_run", drill)
    return made


def test_each_time_the_timer_asks_one_drill_is_done_if_one_is_due(site: Site) -> None:
    assert site.main("drills", "--once") == 0
    assert site.drilled == [], "there is no backup yet"
    add_epoch(site.store)
    snapshot = add_snapshot(site.store, PlainKeys(), 5)
    for _ in range(2):
        assert site.main("drills", "--once") == 0
    assert site.drilled == [snapshot]


def test_two_hosts_do_not_drill_at_once(site: Site) -> None:
    add_epoch(site.store)
    add_snapshot(site.store, PlainKeys(), 5)
    lease = site.store.acquire(NAMES.drill, 60, "drill-2")
    assert site.main("drills", "--once") == 0
    assert site.drilled == []
    lease.release()
    assert site.main("drills", "--once") == 0
    assert len(site.drilled) == 1


@pytest.mark.parametrize("elsewhere", [False, True])
def test_agents_leave_the_drills_to_such_a_host(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    drilling: list[bool] = []

    @contextlib.contextmanager
    def note(*_: object) -> Iterator[None]:
        drilling.append(True)
        yield

    monkeypatch.setattr(drills, "drilling", note)
    monkeypatch.setattr(run, "run", lambda told: 0)
    assert Site(tmp_path, elsewhere).main("run") == 0
    assert drilling == ([] if elsewhere else [True])


def test_within_a_unit_with_limits_no_other_group_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(pathlib.Path, "is_dir", lambda self: True)
    monkeypatch.setattr(shutil, "which", lambda name: pytest.fail("it is not even looked for"))
    monkeypatch.setenv(scratch.LIMITED, "1")
    scratch._makes_scopes.cache_clear()
    try:
        assert scratch.in_scope(scratch.Limits(1 << 30, 50)) == []
    finally:
        scratch._makes_scopes.cache_clear()


def test_the_default_is_drills_beside_members() -> None:
    assert settings.parse(GOOD).drill.elsewhere is False
