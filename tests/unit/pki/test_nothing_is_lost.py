# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Whatever is done to a store, in any order: no secret that some key opens is lost by following remedies.

A user changes the store's key, is killed at any file, puts an older store.json back, loses files, gives the
wrong key, and does what messages say. After every step that is not itself the loss of a file, everything that
could be opened before can still be opened, with some key, from some file that is there.
"""

from __future__ import annotations

import base64
import contextlib
import io
import re
import shutil
import sys
import tarfile
import tempfile
import typing as t
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis.strategies as st
import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import (
    PkiError,
    Store,
    backup_keys,
    generate_key_file,
    open_store,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.folder import BUNDLE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.keys import load_key
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.sealing import key_id, unseal
from hypothesis import HealthCheck, example, given, settings

OPERATIONS = (
    "rekey", "site", "backup key", "bundle", "trust", "issue", "drop", "end", "forget",
    "older", "lose", "other key", "follow", "follow",
)  # fmt: skip
STEP = st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 60), st.integers(0, 1000))
Secret = tuple[str, bytes]


class Killed(BaseException):
    """The process ended here."""


class Fuse:
    """Ends what runs at its n-th change of a file, and lets nothing be changed after that."""

    CHANGES = ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod")

    def __init__(self) -> None:
        self.left: int | None = None
        sys.addaudithook(self._see)

    def _see(self, event: str, arguments: tuple[t.Any, ...]) -> None:
        if self.left is None:
            return
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & 3
        if not writes and event not in self.CHANGES:
            return
        if self.left == 0:
            raise Killed
        self.left -= 1

    @contextlib.contextmanager
    def after(self, changes: int) -> Iterator[None]:
        """Kill what runs inside after so many changes; 50 and more are none at all."""
        self.left = changes if changes < 50 else None
        try:
            yield
        except Killed:
            pass
        finally:
            self.left = None


FUSE = Fuse()


class User:
    """Somebody with a store, its keys, and the messages."""

    def __init__(self, folder: Path, store: Store, key_file: Path) -> None:
        self.folder = folder
        self.path = folder / "pki"
        shutil.copytree(store.path, self.path)
        self.keys = [folder / "0.key"]
        shutil.copy(key_file, self.keys[0])
        self.given = self.keys[0]
        self.headers = [(self.path / "store.json").read_bytes()]
        self.error: PkiError | None = None
        self.dropped: set[Secret] = set()

    def openable(self) -> set[Secret]:
        """Return every secret that some key opens from some file."""
        keys = [load_key(path) for path in self.keys]
        found: set[Secret] = set()
        for path in self.folder.rglob("*"):
            if ".sealed" in path.name and path.is_file():
                found |= self._opened(keys, path.name.partition(".sealed")[0], path.read_bytes())
            if path.name.startswith(BUNDLE) and path.is_file():
                found |= self._bundled(keys, path)
        return found

    def _opened(self, keys: list[bytes], name: str, sealed: bytes) -> set[Secret]:
        for key in keys:
            with contextlib.suppress(PkiError):
                return {(name, unseal(key, name, sealed))}
        return set()

    def _bundled(self, keys: list[bytes], path: Path) -> set[Secret]:
        try:
            sealed = base64.b64decode(backup_keys.described(path.read_text())["sealed"])
        except PkiError:
            return set()
        found: set[Secret] = set()
        for key in keys:
            with contextlib.suppress(PkiError):
                content = unseal(key, backup_keys.FORMAT, sealed)
                with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                    for member in archive.getmembers():
                        data = archive.extractfile(member)
                        if member.name.endswith(".sealed") and data:
                            name = Path(member.name).name.removesuffix(".sealed")
                            found |= self._opened(keys, name, data.read())
        return found

    def do(self, operation: str, kill: int, number: int) -> None:
        """Do one thing, and remember what was said against it."""
        steps: dict[str, Callable[[], t.Any]] = {
            "older": lambda: self._older(number),
            "lose": lambda: self._lose(number),
            "other key": lambda: setattr(self, "given", self.keys[number % len(self.keys)]),
            "follow": self._follow,
        }
        if operation in steps:
            steps[operation]()
            return
        store = open_store(self.path, self.given)
        actions: dict[str, Callable[[], t.Any]] = {
            "rekey": lambda: store.change_key(self._new_key()),
            "site": store.ensure_cas,
            "backup key": store.backup_keys.add,
            "bundle": store.backup_keys.bundle,
            "end": lambda: store.end_stage("etcd"),
            "forget": store.forget,
        }
        self.error = None
        before = self.openable()
        with FUSE.after(kill):
            try:
                actions.get(operation, lambda: store.move("etcd", operation))()
            except PkiError as error:
                self.error = error
        if operation == "end":
            # The key of an authority that nobody trusts any more may be forgotten.
            aside = {path.name.partition(".sealed")[0] for path in self.path.glob("former/*.sealed*")}
            self.dropped |= {secret for secret in before if secret[0] in aside}
        if (self.path / "store.json").exists():
            self.headers.append((self.path / "store.json").read_bytes())

    def _new_key(self) -> Path:
        self.keys.append(generate_key_file(self.folder / f"{len(self.keys)}.key"))
        return self.keys[-1]

    def _older(self, number: int) -> None:
        if self.path.exists():
            (self.path / "store.json").write_bytes(self.headers[number % len(self.headers)])

    def _lose(self, number: int) -> None:
        files = sorted(path for path in self.path.rglob("*") if path.is_file() and path.name != "lock")
        if files:
            files[number % len(files)].unlink()

    def _follow(self) -> None:
        """Do what the last message says."""
        if self.error is None:
            return
        text = f"{self.error.message} {self.error.remedy}"
        copied = re.search(r"cp (\S+) (\S+?)[.]?(?:\s|$)", self.error.remedy)
        if copied and Path(copied[1]).exists():
            shutil.copy(copied[1], copied[2])
        for path in self.keys:
            if re.search(
                rf"(made|encrypted) with key {key_id(load_key(path))}|id {key_id(load_key(path))}", text
            ):
                self.given = path
        if "copy beside the backups" in text and (self.path / BUNDLE).exists():
            bundle = (self.path / BUNDLE).read_text()
            aside = self.folder / f"aside-{len(list(self.folder.iterdir()))}"
            self.path.rename(aside)
            for key in map(load_key, self.keys):
                with contextlib.suppress(PkiError):
                    backup_keys.recover(bundle, key, self.path)
                    break
            else:
                aside.rename(self.path)


@given(steps=st.lists(STEP, max_size=14))
@example(steps=[("bundle", 60, 0), ("rekey", 60, 0), ("older", 0, 0), ("other key", 0, 0), ("site", 60, 0)])
@example(steps=[("rekey", 60, 0), ("older", 0, 0), ("site", 60, 0), ("follow", 0, 0), ("site", 60, 0)])
@example(steps=[("bundle", 60, 0), ("lose", 0, 4), ("lose", 0, 6), ("site", 60, 0), ("bundle", 60, 0)])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_order_of_steps_loses_a_secret(
    store: Store, key_file: Path, steps: list[tuple[str, int, int]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        user = User(Path(folder), store, key_file)
        for operation, kill, number in steps:
            before = user.openable()
            user.do(operation, kill, number)
            if operation != "lose":
                lost = {name for name, _ in before - user.dropped - user.openable()}
                assert not lost, f"{operation} lost {lost}"


def rekeyed(store: Store, key_file: Path, folder: Path) -> tuple[Path, Path, bytes]:
    """Return a store under a new key, that key, and the store.json of before."""
    path = folder / "pki"
    shutil.copytree(store.path, path)
    before = (path / "store.json").read_bytes()
    new = generate_key_file(folder / "new.key")
    open_store(path, key_file).change_key(new)
    return path, new, before


def test_an_older_header_is_told_and_the_remedy_opens_everything(
    store: Store, key_file: Path, tmp_path: Path
) -> None:
    path, new, before = rekeyed(store, key_file, tmp_path)
    sealed = {file.name: file.read_bytes() for file in (path / "secrets-2").iterdir()}
    (path / "store.json").write_bytes(before)
    for key in (key_file, new):
        for ask in ("ensure_cas", "site_uid"):
            with pytest.raises(PkiError, match=r"is older than the store.*Run: cp ") as refused:
                getattr(open_store(path, key), ask)()
            assert key_id(load_key(new)) in refused.value.remedy
    assert {file.name: file.read_bytes() for file in (path / "secrets-2").iterdir()} == sealed
    shutil.copy(path / "store.json.newest", path / "store.json")
    assert open_store(path, new).ensure_cas() == []
    assert open_store(path, new).service_account_key() == store.service_account_key()


def test_without_a_copy_nothing_is_deleted_either(store: Store, key_file: Path, tmp_path: Path) -> None:
    """A store whose key an older version has changed."""
    path, new, before = rekeyed(store, key_file, tmp_path)
    after = (path / "store.json").read_bytes()
    shutil.rmtree(path / "former")
    (path / "store.json.newest").unlink()
    (path / "store.json").write_bytes(before)
    with pytest.raises(PkiError, match=r"secrets are in secrets, which is not there; there is secrets-2"):
        open_store(path, key_file).ensure_cas()
    (path / "store.json").write_bytes(after)
    assert open_store(path, new).ensure_cas() == []


def test_what_is_lost_is_not_made_anew(store: Store, key_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "pki"
    shutil.copytree(store.path, path)
    own = open_store(path, key_file)
    own.backup_keys.add()
    own.backup_keys.bundle()
    own.backup_keys.add()
    bundle = (path / "recovery.bundle").read_bytes()
    for name in ("authorities/etcd.crt", "secrets/etcd-key.sealed"):
        (path / name).unlink()
    for action in (own.ensure_cas, own.backup_keys.bundle, own.forget, lambda: own.change_key(key_file)):
        with pytest.raises(PkiError, match=r"has lost etcd-key.*copy beside the backups"):
            action()
    assert (path / "recovery.bundle").read_bytes() == bundle, "the last copy of what was lost"


def test_only_what_the_store_has_is_forgotten(store: Store, key_file: Path, tmp_path: Path) -> None:
    path, new, _ = rekeyed(store, key_file, tmp_path)
    stranger = path / "former/secrets/backup-key-9.sealed"
    shutil.copy(path / "former/secrets/backup-key-1.sealed", stranger)
    stranger.write_bytes(stranger.read_bytes() + b"x")
    gone, left = open_store(path, new).forget()
    assert left == ["former/secrets/backup-key-9.sealed"]
    assert len(gone) == len(list((path / "secrets-2").iterdir()))
    assert open_store(path, new).forget() == ([], left)
