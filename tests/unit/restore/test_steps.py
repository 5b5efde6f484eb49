# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the steps ask of the backup program, and in which order a host serves again."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._restore import (
    backup_program,
    static_pods,
    steps,
    store,
    work,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._restore.machine import Machine
from ansible_collections.ironspan.hybrid.plugins.modules import etcd_restore

from tests.unit.restore.modules import run_module

REFUSES = 'echo \'{"error": {"message": "The point lies before the first snapshot."}}\'; exit 2'

ETCD = os.geteuid() or 4321
ARGUMENTS = {"point": "latest", "source": "auto", "keep_cluster": "", "pods": False, "data": True}
RECORD = {
    "point": "latest",
    "asked": "auto",
    "source": "survivor",
    "snapshot": "/x",
    "revision": 90,
    "bump": 10,
    "backup": "",
    "epoch": 1,
}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a host that was a member and has lost its data."""
    settings = {
        "name": "az-1",
        "data-dir": "/var/lib/etcd/uid",
        "initial-advertise-peer-urls": "https://10.0.0.1:2380",
        "listen-client-urls": "https://10.0.0.1:2379",
        "listen-peer-urls": "https://10.0.0.1:2380",
    }
    for folder in ("etc/etcd", "var/lib/etcd", "etc/kubernetes/manifests", "proc", "usr/local/bin"):
        (tmp_path / folder).mkdir(parents=True)
    systemctl = tmp_path / "usr/local/bin/systemctl"
    systemctl.write_text("#!/bin/sh\n")
    systemctl.chmod(0o755)
    (tmp_path / "etc/passwd").write_text(f"etcd:x:{ETCD}:{ETCD}::/:/bin/sh\n")
    text = "".join(f"{name}: {value}\n" for name, value in settings.items())
    (tmp_path / "etc/etcd/etcd.yaml").write_text(text)
    made = Machine(str(tmp_path))
    monkeypatch.setattr(etcd_restore, "Machine", lambda: made)
    return made


def install(machine: Machine, body: str) -> Path:
    """Install a backup program that notes its arguments in the file returned, and then does what is said."""
    program = Path(machine.path(backup_program.PROGRAM))
    program.parent.mkdir(parents=True)
    said = program.with_name("said")
    program.write_text(f'#!/bin/sh\necho "$@" >> {said}\n{body}\n')
    program.chmod(0o755)
    return said


def test_the_backup_is_rebuilt_before_anything_is_compared(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    said = install(machine, "echo '{}'")
    done = run_module(etcd_restore, capsys, state="admitted", rebuild=True, point="revision:7")
    assert done["changed"] is True
    output = machine.path("/var/lib/etcd/uid.restore/rebuilt")
    assert said.read_text() == f"rebuild --point revision:7 --output {output} --json\n"
    # In a check it is not, nor where it is not asked for.
    for check, rebuild in ((True, True), (False, False)):
        done = run_module(
            etcd_restore, capsys, check=check, state="admitted", rebuild=rebuild, point="latest"
        )
        assert done["changed"] is False
    assert len(said.read_text().splitlines()) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
@pytest.mark.parametrize("planted", ["folder", "link", "nothing"])
def test_root_works_in_folders_of_its_own(
    machine: Machine, capsys: pytest.CaptureFixture[str], tmp_path: Path, planted: str
) -> None:
    """Etcd's user had the folder above its data, and could put anything where a restore was going to work."""
    root, name, other = Path(machine.path("/var/lib/etcd")), "uid.restore", tmp_path / "elsewhere"
    other.mkdir(mode=0o700)
    os.chown(root, ETCD, ETCD)
    if planted == "folder":
        (root / name).mkdir()
        (root / name / "rebuilt").symlink_to(other)
        os.chown(root / name, ETCD, ETCD)
    elif planted == "link":
        (root / name).symlink_to(other)
    install(machine, "echo '{}'")
    run_module(etcd_restore, capsys, state="admitted", rebuild=True, point="latest")
    for folder, group in ((root, ETCD), (root / name, 0)):
        status = folder.lstat()
        assert (status.st_uid, status.st_gid) == (0, group)
        assert not status.st_mode & 0o022
        assert stat.S_ISDIR(status.st_mode)
    assert list((root / name).iterdir()) == []
    assert other.stat().st_mode & 0o777 == 0o700


def test_a_tree_is_given_to_its_user_and_nothing_else(machine: Machine, tmp_path: Path) -> None:
    made, other = tmp_path / "made", tmp_path / "other"
    (made / "member/wal").mkdir(parents=True)
    (made / "member/wal/0.wal").write_text("x")
    other.write_text("y")
    work.give_tree(str(made), work.owner(machine))
    for path in (made, *made.rglob("*")):
        assert (path.stat().st_uid, path.stat().st_gid) == (ETCD, ETCD)
    (made / "member/link").symlink_to(other)
    with pytest.raises(OSError, match="symbolic link"):
        work.give_tree(str(made), work.owner(machine))
    assert other.stat().st_uid == os.geteuid()


def test_what_the_backup_refuses_is_told_as_a_refusal(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    install(machine, REFUSES)
    done = run_module(etcd_restore, capsys, state="admitted", rebuild=True, point="time:2020-01-01T00:00:00Z")
    assert done["failed"]
    assert done["refused"] is True
    assert done["msg"] == "rebuild: The point lies before the first snapshot."


def test_the_api_server_is_started_while_etcd_starts_and_controllers_when_it_is_ready(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, list[str]]] = []

    def look(what: str) -> None:
        folder = Path(machine.path(static_pods.MANIFESTS))
        seen.append((what, sorted(path.stem for path in folder.iterdir())))

    def release(_machine: Machine) -> bool:
        look("etcd serves")
        return True

    monkeypatch.setattr(store, "release", release)
    monkeypatch.setattr(static_pods, "_wait_until_ready", lambda *_: look("ready"))
    for name in static_pods.PODS:
        Path(machine.path(f"{static_pods.MANIFESTS}/{name}.yaml")).touch()
    static_pods.take_away(machine)
    monkeypatch.setattr(static_pods, "running", lambda *_: [4194304])
    assert steps.served(machine, {"data": True, "pods": True, "after": ""}) == {"changed": True}
    assert seen == [("etcd serves", ["kube-apiserver"]), ("ready", ["kube-apiserver"])]
    look("afterwards")
    assert seen[-1][1] == sorted(static_pods.PODS)


def test_a_host_that_restores_serves_nobody_else_and_starts_no_api_server(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifests = Path(machine.path(static_pods.MANIFESTS))
    for name in static_pods.PODS:
        (manifests / f"{name}.yaml").touch()
    machine.replace({**RECORD, "cluster": "abc", "finished": False})
    seen: list[tuple[str, list[str]]] = []

    def note(what: str) -> dict[str, int]:
        seen.append((what, sorted(path.stem for path in manifests.iterdir())))
        return {"keys": 5}

    asked = threading.Event()

    def serve_alone(*_: object) -> dict[str, int]:
        assert asked.wait(120)
        return note("checked")

    def begin_epoch(*_: object) -> None:
        asked.set()
        note("epoch")

    monkeypatch.setattr(store, "place", lambda *_: None)
    monkeypatch.setattr(store, "serve_alone", serve_alone)
    monkeypatch.setattr(machine, "has_backup_program", lambda: True)
    monkeypatch.setattr(machine, "ask_backup", begin_epoch)
    monkeypatch.setattr(store, "release", lambda *_: pytest.fail("other hosts may still have to be stopped"))
    assert steps.restored(machine, {**ARGUMENTS, "pods": True})["changed"]
    assert sorted(seen) == [("checked", []), ("epoch", [])]
    assert list(manifests.iterdir()) == []


def test_nobody_is_served_from_data_whose_backups_have_no_epoch(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.replace({**RECORD, "cluster": "abc", "finished": False})
    install(machine, REFUSES)
    monkeypatch.setattr(store, "place", lambda *_: None)
    monkeypatch.setattr(store, "serve_alone", lambda *_: {"keys": 5})
    monkeypatch.setattr(store, "release", lambda *_: pytest.fail("served"))
    with pytest.raises(backup_program.ProgramError):
        steps.restored(machine, {**ARGUMENTS, "pods": True})
    assert "keys" not in machine.record()


def test_a_host_without_a_control_plane_only_serves(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "release", lambda _machine: False)
    assert steps.served(machine, {"data": True, "pods": False}) == {"changed": False}
    assert not list(Path(machine.path(static_pods.MANIFESTS)).iterdir())


@pytest.mark.parametrize("backup", ["newest", ""])
def test_another_epoch_is_begun_with_what_is_served_and_before_others_can_write(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, backup: str
) -> None:
    said = install(machine, "echo '{}'")
    machine.replace({**RECORD, "backup": backup, "cluster": "abc", "finished": False})
    monkeypatch.setattr(store, "place", lambda *_: None)
    monkeypatch.setattr(store, "serve_alone", lambda *_: {"keys": 5})
    assert steps.restored(machine, ARGUMENTS)["keys"] == 5
    expected = (
        f"new-epoch --cluster-id=abc --snapshot={backup or 'survivor'} --revision=90 --bump-revision=10"
    )
    assert said.read_text() == f"{expected} --json\n"
    assert not json.loads(Path(machine.path("/var/lib/ironspan/etcd-restore.json")).read_text()).get(
        "released"
    )
