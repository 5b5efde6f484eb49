# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""check-store: every way in which a store is not what a writer needs has a finding of its own."""

from __future__ import annotations

import base64
import collections.abc
import copy
import json
import os
import pathlib
import typing as t

import pytest

from ironspan.backup import gc
from ironspan.backup.check_store import check_keys, check_store
from ironspan.backup.file_store import FileStore
from ironspan.backup.main import main
from ironspan.backup.names import Names
from ironspan.backup.settings import Retention
from ironspan.program.errors import AlreadyThere, Forbidden, LeaseLost, RoleMissing, ServiceError
from ironspan.program.leader import Lease
from tests.unit.backup.test_settings import GOOD


class Guarded(FileStore):
    """A folder that plays an account: the identity may not delete, and a policy retains."""

    refusal: ServiceError | None = RoleMissing("no role")
    retained = True

    def delete(self, name: str) -> None:
        if self.refusal:
            raise self.refusal
        super().delete(name)

    def retains(self) -> bool:
        return self.retained


class Deletes(Guarded):
    refusal = None


class PolicyOnly(Guarded):
    refusal = Forbidden("immutable")


class NotRetained(Guarded):
    retained = False


class Replaces(Guarded):
    def put(self, name: str, data: collections.abc.Iterable[bytes]) -> None:
        try:
            super().put(name, data)
        except AlreadyThere:
            return


class Alters(Guarded):
    def read(self, name: str, offset: int = 0, length: int | None = None) -> collections.abc.Iterator[bytes]:
        yield b"another"


class AppendsAnywhere(Guarded):
    def append(self, name: str, data: bytes, position: int) -> int:
        return super().append(name, data, self.size(name))


class _Shared:
    id = "x"

    def renew(self) -> None:
        pass

    def release(self) -> None:
        pass


class SharesLeases(Guarded):
    def acquire(self, name: str, seconds: int, holder: str) -> Lease:
        return _Shared()


class LosesLeases(Guarded):
    def acquire(self, name: str, seconds: int, holder: str) -> Lease:
        raise LeaseLost("another")


class WritesNothing(Guarded):
    def put(self, name: str, data: collections.abc.Iterable[bytes]) -> None:
        raise RoleMissing("no role", "Assign it.")


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        (Guarded, []),
        (FileStore, []),
        (Deletes, ["this identity may not delete"]),
        (PolicyOnly, ["this identity may not delete"]),
        (NotRetained, ["a policy retains what is written"]),
        (Replaces, ["an object is never replaced"]),
        (Alters, ["read it back"]),
        (AppendsAnywhere, ["an append at a wrong position is refused"]),
        (SharesLeases, ["one holder of a lease"]),
        (LosesLeases, ["one holder of a lease"]),
        (WritesNothing, ["create an object, whole"]),
    ],
)
def test_what_is_missing_is_found(tmp_path: pathlib.Path, kind: type[FileStore], missing: list[str]) -> None:
    findings = list(check_store(kind(tmp_path), "lab", "az-1"))
    assert [finding.check for finding in findings if finding.ok is False] == missing
    assert all(finding.detail for finding in findings if finding.ok is not True)


def test_probes_have_names_of_their_own(tmp_path: pathlib.Path) -> None:
    store = Guarded(tmp_path)
    for now in (1000.0, 1000.5):
        assert all(finding.ok for finding in check_store(store, "lab", "az-1", now))
    assert {item.name.split("/")[1] for item in store.list("lab/")} == {"probe"}


def test_probes_are_collected_when_they_are_old(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, names = FileStore(tmp_path), Names("lab")
    assert all(finding.ok is not False for finding in check_store(store, "lab", "az-1"))
    assert not gc.collect(store, names, Retention(1, 1, 1, 1)).deleted
    monkeypatch.setattr(gc, "PROBE_SECONDS", -10.0)
    assert len(gc.collect(store, names, Retention(1, 1, 1, 1)).deleted) == 3
    assert not list(store.list(names.probes))


def test_keys_are_tried(tmp_path: pathlib.Path) -> None:
    entry = {"kind": "file", "folder": str(tmp_path)}
    (missing,) = check_keys(entry)
    assert missing.ok is False
    assert "1.key" in missing.remedy
    (tmp_path / "1.key").write_bytes(base64.b64encode(os.urandom(32)))
    assert [finding.ok for finding in check_keys(entry)] == [True, True]


@pytest.mark.parametrize(("keys", "code"), [(True, 0), (False, 2)])
def test_the_command(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], keys: bool, code: int
) -> None:
    settings: dict[str, t.Any] = copy.deepcopy(GOOD)
    settings["stores"] = [{"kind": "file", "path": str(tmp_path / "backup"), "prefix": ""}]
    settings["keys"] = {"kind": "file", "folder": str(tmp_path)}
    if keys:
        (tmp_path / "1.key").write_bytes(base64.b64encode(os.urandom(32)))
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(settings))
    assert main(["check-store", "--json", "--settings", str(file)]) == code
    shown = json.loads(capsys.readouterr().out)
    assert shown["ok"] is keys
    assert main(["check-store", "--settings", str(file)]) == code
    assert ("MISSING" in capsys.readouterr().out) is not keys


def test_an_account_that_is_nowhere_fails_without_refusing(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 1: it may be there later."""
    settings: dict[str, t.Any] = copy.deepcopy(GOOD)
    settings["keys"] = {"kind": "file", "folder": str(tmp_path)}
    (tmp_path / "1.key").write_bytes(base64.b64encode(os.urandom(32)))
    settings["stores"] = settings["stores"][:1]
    monkeypatch.setattr("ironspan.backup.stores.open_store", lambda entry: Unreachable(tmp_path / "backup"))
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(settings))
    assert main(["check-store", "--settings", str(file)]) == 1
    assert "no connection" in capsys.readouterr().out


class Unreachable(Guarded):
    def list(self, prefix: str) -> t.NoReturn:
        raise ServiceError("no connection", retryable=True)

    def put(self, name: str, data: collections.abc.Iterable[bytes]) -> t.NoReturn:
        raise ServiceError("no connection", retryable=True)
