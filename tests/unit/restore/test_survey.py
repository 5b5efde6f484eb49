# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a host says of its data, its configuration and an unfinished restore."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._restore import configuration, survey
from ansible_collections.ironspan.hybrid.plugins.module_utils._restore.machine import Machine, RestoreError
from ansible_collections.ironspan.hybrid.plugins.module_utils._restore.store import BUMP, bump_of
from hypothesis import given
from hypothesis import strategies as st

CONFIGURATION = """\
name: az-1
data-dir: /var/lib/etcd/uid
listen-peer-urls: https://10.0.0.1:2380
listen-client-urls: https://10.0.0.1:2379,https://127.0.0.1:2379
initial-advertise-peer-urls: https://10.0.0.1:2380
client-transport-security:
  cert-file: /etc/etcd/pki/server.crt
"""


def varint(number: int) -> bytes:
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def frame(kind: int, content: bytes) -> bytes:
    """Return a record of a write-ahead log, with padding to eight bytes as etcd writes it."""
    record = b"\x08" + varint(kind) + b"\x10\x00" + b"\x1a" + varint(len(content)) + content
    padding = -len(record) % 8
    head = len(record) | ((0x80 | padding) << 56 if padding else 0)
    return head.to_bytes(8, "little") + record + bytes(padding)


def state(commit: int) -> bytes:
    return b"\x08\x02\x10\x01\x18" + varint(commit)


@given(st.lists(st.integers(min_value=0, max_value=2**50)), st.binary(max_size=20))
def test_the_commit_index_is_the_highest_that_the_log_tells(commits: list[int], entry: bytes) -> None:
    log = b"".join(frame(2, entry) + frame(survey.STATE, state(commit)) for commit in commits)
    assert survey.commit_index(log + bytes(64)) == max(commits, default=0)


@given(st.lists(st.integers(min_value=1, max_value=2**50), min_size=1), st.data())
def test_a_torn_log_tells_what_is_whole(commits: list[int], data: st.DataObject) -> None:
    frames = [frame(survey.STATE, state(commit)) for commit in commits]
    log = b"".join(frames)
    cut = data.draw(st.integers(min_value=0, max_value=len(log) - 1))
    whole = [commit for n, commit in enumerate(commits) if len(b"".join(frames[: n + 1])) <= cut]
    assert survey.commit_index(log[:cut]) >= max(whole, default=0)


@given(st.binary(max_size=200))
def test_no_bytes_are_too_strange(log: bytes) -> None:
    assert survey.commit_index(log) >= 0
    assert survey.commit_index(frame(survey.STATE, log)) >= 0


@given(st.integers(min_value=0, max_value=2**55), st.integers(min_value=0, max_value=2**55))
def test_no_revision_comes_again(revision: int, more: int) -> None:
    last_seen = revision + more
    bump = bump_of(revision, last_seen)
    assert bump >= BUMP
    assert revision + bump >= last_seen + BUMP
    assert revision + bump >= last_seen + last_seen // 5


def make(root: Path, text: str = CONFIGURATION) -> Machine:
    for folder in ("etc/etcd", "var/lib/etcd", "usr/local/bin"):
        (root / folder).mkdir(parents=True)
    (root / "etc/etcd/etcd.yaml").write_text(text)
    for name in survey.PROGRAMS:
        (root / "usr/local/bin" / name).touch()
    return Machine(str(root))


def test_a_member_without_data(tmp_path: Path) -> None:
    found = survey.survey(make(tmp_path), "latest", "auto")
    assert found["configured"]
    assert found["problems"] == []
    assert found["data"] is None
    assert found["data_dir"] == "/var/lib/etcd/uid"
    assert found["backup"] is False


def test_a_host_that_never_was_a_member(tmp_path: Path) -> None:
    assert not survey.survey(Machine(str(tmp_path)), "latest", "auto")["configured"]


def test_what_a_restore_needs_is_missing(tmp_path: Path) -> None:
    machine = make(tmp_path)
    (tmp_path / "usr/local/bin/etcdutl").unlink()
    assert survey.survey(machine, "latest", "auto")["problems"] == ["etcdutl is missing in /usr/local/bin"]
    (tmp_path / "etc/etcd/etcd.yaml").write_text("name: az-1\n")
    with pytest.raises(RestoreError, match="does not set data-dir"):
        survey.survey(machine, "latest", "auto")


def test_an_unfinished_restore_is_told_for_its_point_only(tmp_path: Path) -> None:
    machine = make(tmp_path)
    machine.remember(point="latest", asked="auto", finished=False)
    assert survey.survey(machine, "latest", "backup")["going_on"] == {}
    assert survey.survey(machine, "latest", "backup")["unfinished"]
    assert survey.survey(machine, "latest", "auto")["going_on"]["point"] == "latest"
    assert survey.survey(machine, "revision:5", "auto")["going_on"] == {}
    machine.remember(finished=True)
    assert survey.survey(machine, "latest", "auto")["going_on"] == {}
    (tmp_path / "var/lib/ironspan/etcd-restore.json").write_text("{")
    with pytest.raises(RestoreError, match="is damaged"):
        survey.survey(machine, "latest", "auto")


def test_the_other_configurations(tmp_path: Path) -> None:
    own = configuration.read(make(tmp_path))
    assert own is not None
    closed = own.quarantined()
    assert "listen-client-urls: https://127.0.0.1:2379\n" in closed
    assert "10.0.0.1:2379" not in closed
    assert "listen-peer-urls: https://10.0.0.1:2380\n" in closed
    assert "  cert-file: /etc/etcd/pki/server.crt\n" in closed
    alone = own.alone("/copy")
    assert "10.0.0.1:" not in alone.replace("initial-advertise-peer-urls: https://10.0.0.1:2380", "")
    assert "data-dir: /copy\n" in alone
    assert "force-new-cluster: true\n" in alone


def test_other_drop_ins_stay(tmp_path: Path) -> None:
    machine = make(tmp_path)
    systemctl = tmp_path / "usr/local/bin/systemctl"
    systemctl.write_text("#!/bin/sh\n")
    systemctl.chmod(0o755)
    other = tmp_path / "etc/systemd/system/etcd.service.d/other.conf"
    other.parent.mkdir(parents=True)
    other.touch()
    configuration.divert(machine, "text")
    assert configuration.is_diverted(machine)
    assert configuration.straighten(machine)
    assert not configuration.straighten(machine)
    assert [path.name for path in other.parent.iterdir()] == ["other.conf"]


def test_a_failed_program_says_why(tmp_path: Path) -> None:
    program = tmp_path / "usr/local/bin/etcdutl"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho first >&2; echo 'the snapshot is damaged' >&2; exit 1\n")
    program.chmod(0o755)
    with pytest.raises(RestoreError, match="etcdutl snapshot restore failed: the snapshot is damaged"):
        Machine(str(tmp_path)).run("etcdutl", "snapshot", "restore", "FILE")
    with pytest.raises(RestoreError, match="none failed"):
        Machine(str(tmp_path)).run("none")


def test_the_record_is_json_for_people(tmp_path: Path) -> None:
    machine = Machine(str(tmp_path))
    machine.remember(point="latest")
    path = tmp_path / "var/lib/ironspan/etcd-restore.json"
    assert json.loads(path.read_text()) == {"point": "latest"}
    assert path.stat().st_mode & 0o777 == 0o600
