# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The layer etcd_backup on a host: what the real engine makes of it in a private root."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Callable

import pytest

from tests.unit.conftest import Mirror, Sandbox
from tests.unit.roles.conftest import Rendered

Render = Callable[..., Rendered]
FILE = [{"kind": "file", "path": "/srv/etcd-backup"}]
PROGRAM = b"#!/bin/sh\n"
SECRETS = {
    "backup-key-1": "a2V5IDE=\n",
    "backup-key-2": "a2V5IDI=\n",
    "backup-writer-2": "d3JpdGVy\n",
    "backup-drill-1": "ZHJpbGw=\n",
    "recovery-" + "4" * 16: "{}\n",
}


@pytest.fixture
def host(sandbox: Sandbox, mirror: Mirror) -> Sandbox:
    """A host on which etcd runs already."""
    (sandbox.root / "srv").mkdir()
    return sandbox


@pytest.fixture
def converge(render: Render, host: Sandbox, mirror: Mirror) -> Callable[..., dict[str, t.Any]]:
    """Return a function that converges the layer alone, as the playbook does."""
    offered = mirror.offer("/program", PROGRAM)

    def run(stores: t.Any = FILE, secrets: dict[str, str] | None = None, **params: t.Any) -> dict[str, t.Any]:
        document = render(variables={"etcd_backup_stores": stores}).document("az-1")
        for resource in document["resources"]:
            if resource["id"] == "etcd_backup/program":
                resource.update(offered)
        result = host.run(document=document, layers=["etcd_backup"], secrets=secrets or {}, **params)
        assert not result.get("failed"), result.get("msg")
        return result

    return run


def changed(result: dict[str, t.Any]) -> list[str]:
    return [change["resource"] for change in result["changes"]]


def test_installed_and_then_left_alone(converge: Callable[..., t.Any], host: Sandbox) -> None:
    assessed = converge(mode="assess")
    assert {entry["needs"] for entry in assessed["pending"]} >= {"secret:backup-key-1", "secret:backup-key-2"}
    first = converge(secrets=SECRETS)
    assert "etcd_backup/service" in changed(first)
    assert first["pending"] == []
    program = host.root / "opt/ironspan/etcd-backup/bin/ironspan-etcd-backup"
    assert program.stat().st_mode & 0o777 == 0o755
    folder = host.root / "etc/ironspan/etcd-backup"
    assert folder.stat().st_mode & 0o777 == 0o700
    for file in (folder / "keys/1.key", folder / "keys/2.key", folder / "recovery.bundle"):
        assert file.stat().st_mode & 0o777 == 0o600
    assert (folder / "keys/2.key").read_text() == SECRETS["backup-key-2"]
    assert json.loads(host.read("etc/ironspan/etcd-backup.json"))["stores"][0]["path"] == "/srv/etcd-backup"
    host.calls()
    again = converge(mode="assess")
    assert (changed(again), again["pending"]) == ([], []), "nothing is to be done, and no secret is asked for"
    assert not [call for call in host.calls() if " show " not in f" {call} "]


def test_a_settings_file_that_somebody_changed_comes_back_and_restarts_the_agent(
    converge: Callable[..., t.Any], host: Sandbox
) -> None:
    converge(secrets=SECRETS)
    host.put("etc/ironspan/etcd-backup.json", "{}", 0o644)
    assert changed(converge(secrets=SECRETS)) == ["etcd_backup/settings", "etcd_backup/service"]


def test_another_copy_of_the_pki_store_restarts_nothing(
    converge: Callable[..., t.Any], host: Sandbox
) -> None:
    converge(secrets=SECRETS)
    host.put("etc/ironspan/etcd-backup/recovery.bundle", "altered", 0o600)
    assert changed(converge(secrets=SECRETS)) == ["etcd_backup/recovery"]


def test_without_a_store_the_agent_goes_and_keys_stay(converge: Callable[..., t.Any], host: Sandbox) -> None:
    converge(secrets=SECRETS)
    done = changed(converge(stores=[]))
    assert [name for name in done if "unit-removed" in name or "signing" in name] == [
        "etcd_backup/unit-removed-1",
        "etcd_backup/signing-drill-1-removed",
        "etcd_backup/signing-writer-2-removed",
        "etcd_backup/unit-removed",
        "etcd_backup/signing-removed",
    ]
    assert not list((host.root / "etc/systemd/system").glob("ironspan-*"))
    folder = host.root / "etc/ironspan/etcd-backup"
    assert (folder / "keys/1.key").exists() and (folder / "recovery.bundle").exists()
    assert not (folder / "signing").exists()
    assert (host.root / "opt/ironspan/etcd-backup/bin/ironspan-etcd-backup").exists()
    assert changed(converge(stores=[])) == []


def test_reset_takes_everything_but_the_backups(
    converge: Callable[..., t.Any], render: Render, host: Sandbox
) -> None:
    converge(secrets=SECRETS)
    host.put("srv/etcd-backup/lab/writer", "kept")
    # Another program, and what ours unpacked.
    host.put("opt/ironspan/another/bin/program", "kept")
    host.put("opt/ironspan/etcd-backup/1234/module.py", "x")
    document = render(variables={"etcd_backup_stores": FILE}).document("az-1", "reset.yml.j2")
    result = host.run(document=document, layers=["etcd_backup"])
    assert not result.get("failed"), result.get("msg")
    for path in ("etc/ironspan/etcd-backup", "opt/ironspan/etcd-backup", "var/lib/ironspan/etcd-backup"):
        assert not (host.root / path).exists(), path
    assert host.read("srv/etcd-backup/lab/writer") == "kept"
    assert host.read("opt/ironspan/another/bin/program") == "kept"
    state = json.loads(host.read("var/lib/ironspan/state.json"))
    assert state["owned"] == {}, "nothing of the host is the engine's any more"
