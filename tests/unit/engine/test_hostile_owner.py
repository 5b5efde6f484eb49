# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A service user who owns folders that root works in: it reaches nothing outside them, whatever it swaps."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import backup
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import files, paths

from tests.unit.conftest import Mirror, Sandbox

USER = 4321
ROUNDS = 30

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")

HOSTILE = """
import os, random, sys, time
folder, outside, seed, user = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
os.setgroups([]); os.setgid(user); os.setuid(user)
chance = random.Random(seed)
names = ["server.key", "server.key", "ca.crt", "data", "data", "gone", "tool", "link"]
targets = ["secret", "open", "folder", "program", "folder/inner"]
print("ready", flush=True)
def attempt(act, *arguments, **options):
    try: act(*arguments, **options)
    except OSError: pass
while True:
    path = os.path.join(folder, chance.choice(names))
    target = os.path.join(outside, chance.choice(targets))
    aside = os.path.join(folder, f"aside-{chance.randrange(20)}")
    attempt(os.rename, path, aside)
    # Links wait under other names, so that the exchange is one step.
    attempt(os.symlink, target, aside + ".link")
    attempt(os.link, target, aside + ".hard", follow_symlinks=False)
    if chance.randrange(4):
        attempt(os.rename, aside + chance.choice([".link", ".hard"]), path)
    else:
        attempt(os.mkdir, path)
    time.sleep(chance.random() * 0.006)
    attempt(os.unlink, path)
    attempt(os.rmdir, path)
    attempt(os.rename, aside, path)
    time.sleep(chance.random() * chance.choice([0.01, 0.01, 0.01, 0.03, 0.3]))
"""


def outside_of(folder: Path) -> Path:
    """Make what is not the user's; it may make hard links of the file that it may write."""
    (folder / "folder/inner").mkdir(parents=True)
    (folder / "secret").write_text("root only")
    (folder / "open").write_text("anybody writes")
    (folder / "program").write_text("set-id")
    (folder / "folder/inner/file").write_text("deep")
    for name, mode in (("secret", 0o600), ("open", 0o666), ("program", 0o4755)):
        (folder / name).chmod(mode)
    return folder


def state_of(folder: Path) -> dict[str, tuple[t.Any, ...]]:
    """Return owner, mode and content of all below a folder."""
    found: dict[str, tuple[t.Any, ...]] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        found[str(path)] = (status.st_uid, status.st_gid, status.st_mode, content)
    return found


@pytest.fixture(name="service")
def _service(sandbox: Sandbox) -> Path:
    """The folder of the service user in the host's root."""
    etc = sandbox.root / "etc"
    etc.chmod(0o755)
    (etc / "passwd").write_text(f"root:x:0:0::/root:/bin/sh\netcd:x:{USER}:{USER}::/:/bin/sh\n")
    (etc / "group").write_text(f"root:x:0:\netcd:x:{USER}:\n")
    folder = etc / "etcd"
    folder.mkdir()
    os.chown(folder, USER, USER)
    return folder


OWNED: dict[str, t.Any] = {"owner": "etcd", "group": "etcd"}


def document(mirror: Mirror, number: int) -> list[dict[str, t.Any]]:
    """What the layer etcd has in the user's folder, and what other layers could have."""
    return [
        {"kind": "directory", "id": "pki", "path": "/etc/etcd", "mode": "0750", **OWNED},
        {"kind": "directory", "id": "data", "path": "/etc/etcd/data", "mode": f"07{number % 2}0", **OWNED},
        {"kind": "file", "id": "ca", "path": "/etc/etcd/ca.crt", "content": f"{number}", "mode": "0644"},
        {
            "kind": "key_and_csr",
            "id": "key",
            "key_path": "/etc/etcd/server.key",
            "csr": {"common_name": "a", "organizations": [], "dns": [], "ips": []},
            "mode": f"06{4 * (number % 2)}0",
            **OWNED,
        },
        {"kind": "symlink", "id": "link", "path": "/etc/etcd/link", "target": "data"},
        {"kind": "absent", "id": "gone", "path": "/etc/etcd/gone", "recursive": True},
        {
            "kind": "artifact",
            "id": "tool",
            "path": "/etc/etcd/tool",
            **mirror.offer("/t", b"tool %d" % number),
        },
    ]


@pytest.mark.parametrize("seed", range(2))
def test_nothing_outside_changes_while_paths_are_swapped(
    sandbox: Sandbox, mirror: Mirror, service: Path, tmp_path: Path, seed: int
) -> None:
    outside = outside_of(tmp_path / "outside")
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        # The user must get there, or it has no way to attack; pytest's folders are closed to it.
        folder.chmod(0o755)
    before = state_of(outside)
    argv = [sys.executable, "-c", HOSTILE, str(service), str(outside), str(seed), str(USER)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as hostile:
        assert hostile.stdout is not None
        assert hostile.stdout.readline() == "ready\n"
        try:
            acted = []
            for number in range(ROUNDS):
                last = {"kind": "file", "id": "last", "path": "/etc/last", "content": f"{number}"}
                if number % 3 == 2:
                    # It fails, so that all of it is rolled back.
                    last["path"] = "/none/last"
                result = sandbox.run(*document(mirror, number), last)
                acted.append(bool(result["changed"] or result.get("rolled_back")))
                assert "root only" not in repr(result)
                assert state_of(outside) == before
            assert hostile.poll() is None
        finally:
            hostile.kill()
    # Not all of it was refused before anything was done.
    assert any(acted)


LINKED = ["server.key", "ca.crt", "data", "tool"]


@pytest.mark.parametrize("how", ["symbolic", "hard"])
@pytest.mark.parametrize("name", LINKED)
def test_a_link_that_waits_is_named_or_replaced(
    sandbox: Sandbox, mirror: Mirror, service: Path, tmp_path: Path, name: str, how: str
) -> None:
    outside = outside_of(tmp_path / "outside")
    before = state_of(outside)
    if how == "symbolic":
        (service / name).symlink_to(outside / ("folder" if name == "data" else "secret"))
    elif name == "data":
        pytest.skip("folders have no hard links")
    else:
        (service / name).hardlink_to(outside / "secret")
    result = sandbox.run(*document(mirror, 1))
    assert state_of(outside) == before
    assert "root only" not in repr(result)
    if result.get("failed"):
        assert f"/etc/etcd/{name}" in result["msg"]
        assert "Find out who made it" in result["remedy"]
    else:
        assert not (service / name).is_symlink()


def test_ownership_of_a_link_is_refused(service: Path, tmp_path: Path) -> None:
    outside = outside_of(tmp_path / "outside")
    before = state_of(outside)
    (service / "ca.crt").symlink_to(outside / "secret")
    (service / "deep").symlink_to(outside / "folder")
    (service / "hard").hardlink_to(outside / "open")
    os.mkfifo(service / "pipe")
    for path in ("ca.crt", "deep/inner", "hard", "pipe"):
        with pytest.raises(paths.UnsafePath, match=r"link|ordinary|other names"):
            paths.set_owner_and_mode(str(service / path), 0o777, (USER, USER))
        with pytest.raises(paths.UnsafePath):
            paths.read(str(service / path))
    for act in (paths.remove, paths.remove_tree, paths.names):
        with pytest.raises(paths.UnsafePath):
            act(str(service / "deep/inner"))
    with pytest.raises(paths.UnsafePath):
        files.write_atomically(str(service / "deep/new"), b"x", 0o644)
    assert state_of(outside) == before


def test_a_link_from_before_a_folder_was_roots_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("root only")
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "server.crt").symlink_to(tmp_path / "secret")
    os.chown(taken / "server.crt", USER, USER, follow_symlinks=False)
    with pytest.raises(paths.UnsafePath, match="a symbolic link that is not root's"):
        paths.read(str(taken / "server.crt"))
    with pytest.raises(paths.UnsafePath):
        paths.set_owner_and_mode(str(taken / "server.crt"), 0o777, (USER, USER))


def test_links_of_root_are_followed_and_those_of_others_in_a_shared_folder_are_not(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/file").write_text("x")
    (tmp_path / "to").symlink_to("real")
    (tmp_path / "far").symlink_to(tmp_path / "to/../to")
    assert paths.read(str(tmp_path / "far/file")) == b"x"
    assert paths.real(str(tmp_path / "far")) == str(tmp_path / "real")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(paths.UnsafePath):
        paths.read(str(tmp_path / "loop"))
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "mine").symlink_to(tmp_path / "real")
    (shared / "its").symlink_to(tmp_path / "real")
    os.chown(shared / "its", USER, USER, follow_symlinks=False)
    assert paths.read(str(shared / "mine/file")) == b"x"
    with pytest.raises(paths.UnsafePath):
        paths.read(str(shared / "its/file"))
    # Without the sticky bit anybody may exchange what root put there.
    shared.chmod(0o777)
    with pytest.raises(paths.UnsafePath):
        paths.read(str(shared / "mine/file"))


def test_a_tree_is_removed_without_what_its_links_lead_to(service: Path, tmp_path: Path) -> None:
    outside = outside_of(tmp_path / "outside")
    before = state_of(outside)
    (service / "tree/inner").mkdir(parents=True)
    (service / "tree/link").symlink_to(outside / "folder")
    (service / "tree/inner/hard").hardlink_to(outside / "open")
    backup.delete_tree(str(service / "tree"))
    backup.delete_tree(str(service / "tree"))
    assert not (service / "tree").exists()
    assert state_of(outside) == before


def test_a_rollback_never_shows_a_key(sandbox: Sandbox, tmp_path: Path) -> None:
    """From its first moment a file that is made has mode 0600, or that of the file that was there."""
    path = sandbox.root / "etc/key"
    path.write_text("private")
    path.chmod(0o640)
    os.chown(path, USER, USER)
    seen: list[tuple[int, int, int, str]] = []

    def trace(event: str, arguments: tuple[t.Any, ...]) -> None:
        if event in ("os.rename", "os.utime", "os.chmod", "os.chown", "open", "shutil.copyfile"):
            for entry in os.scandir(sandbox.root / "etc"):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode) and entry.name != "passwd":
                    seen.append((status.st_mode & 0o777, status.st_uid, status.st_size, entry.name))

    former = os.umask(0)
    watching.append(trace)
    try:
        record = backup.take(str(path), str(tmp_path), 1)
        path.write_text("something else")
        assert backup.restore(str(path), record, str(tmp_path)) is None
    finally:
        watching.clear()
        os.umask(former)
    assert path.read_text() == "private"
    assert path.stat().st_mode & 0o777 == 0o640
    assert {(mode, uid) for mode, uid, size, _ in seen if size} == {(0o640, USER)}
    assert all(mode in (0o600, 0o640) for mode, _, _, _ in seen), seen


watching: list[t.Callable[[str, tuple[t.Any, ...]], None]] = []


def _hook(event: str, arguments: tuple[t.Any, ...]) -> None:
    if watching:
        hook = watching.pop()
        try:
            hook(event, arguments)
        finally:
            watching.append(hook)


sys.addaudithook(_hook)


def test_the_kept_copy_is_the_file_that_was_described(service: Path, tmp_path: Path) -> None:
    """Owner and mode of one file and content of another would make a set-id program of the user's choice."""
    kept = tmp_path / "kept"
    kept.mkdir()
    (service / "tool").write_text("of the user")
    (service / "tool").chmod(0o644)
    os.chown(service / "tool", USER, USER)
    record = backup.take(str(service / "tool"), str(kept), 1)
    assert (record["uid"], record["mode"]) == (USER, 0o644)
    (service / "tool").unlink()
    (service / "tool").hardlink_to(outside_of(tmp_path / "outside") / "program")
    with pytest.raises(paths.UnsafePath):
        backup.take(str(service / "tool"), str(kept), 2)
    assert [path.name for path in kept.iterdir()] == ["1"]
