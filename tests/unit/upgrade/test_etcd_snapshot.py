# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The module ``etcd_snapshot`` with stand-ins for etcd's programs: where a snapshot is written, and whose."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.modules import etcd_snapshot

from tests.unit.restore.modules import run_module

USER = 4321
ETCDCTL = """#!/bin/sh
case "$1" in
endpoint) echo '[{"Status": {"dbSize": 10}}]';;
snapshot) echo saved > "$3"; chmod 0644 "$3";;
esac
"""
ETCDUTL = """#!/bin/sh
test -s "$3" && echo '{"revision": 7, "totalKey": 3}'
"""


@pytest.fixture(name="etcd")
def _etcd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as of the user that etcd runs as, with the programs in PATH."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("etcdctl", ETCDCTL), ("etcdutl", ETCDUTL)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    (tmp_path / "settings").write_text("# of the role\nETCDCTL_X=1\n")
    folder = tmp_path / "etcd"
    folder.mkdir()
    if os.geteuid() == 0:
        os.chown(folder, USER, USER)
    return folder


def test_it_is_written_and_the_oldest_go(etcd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = etcd / "snapshots"
    folder.mkdir()
    for name in ("snapshot-20200101T000000Z.db", "snapshot-20200102T000000Z.db", ".snapshot-x.part", "other"):
        (folder / name).touch()
    done = run_module(
        etcd_snapshot, capsys, directory=str(folder), keep=2, environment_file=str(etcd.parent / "settings")
    )
    path = Path(done["path"])
    assert (done["revision"], done["keys"], done["bytes"]) == (7, 3, len("saved\n"))
    assert done["removed"] == ["snapshot-20200101T000000Z.db"]
    assert sorted(entry.name for entry in folder.iterdir()) == [
        "other", "snapshot-20200102T000000Z.db", path.name
    ]  # fmt: skip
    assert path.read_text() == "saved\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_a_folder_that_etcds_user_prepared_is_roots_first(
    etcd: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("of root")
    folder = etcd / "snapshots"
    folder.mkdir()
    os.chown(folder, USER, USER)
    (folder / ".snapshot-1.db.part").symlink_to(outside)
    done = run_module(
        etcd_snapshot, capsys, directory=str(folder), environment_file=str(tmp_path / "settings")
    )
    assert "failed" not in done, done
    assert (folder.stat().st_uid, folder.stat().st_mode & 0o777) == (0, 0o700)
    assert outside.read_text() == "of root"
    (etcd / "link").symlink_to(tmp_path)
    refused = run_module(
        etcd_snapshot, capsys, directory=str(etcd / "link"), environment_file=str(tmp_path / "settings")
    )
    assert "symbolic link in a folder that others than root can change" in refused["msg"]
