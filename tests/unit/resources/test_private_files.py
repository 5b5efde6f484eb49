# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``private_files``: keys that the kubelet and kubeadm made are closed again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.private_files import KIND

from tests.unit.conftest import Sandbox

from .fake_host import FakeHost, converge, filled

PKI = "/var/lib/kubelet/pki"
OWNER = {"owner": str(os.geteuid()), "group": str(os.getegid())}


def spec(*paths: str) -> dict[str, Any]:
    return filled(KIND, id="node/secrets", paths=list(paths or [f"{PKI}/*.pem", f"{PKI}/*.key"]), **OWNER)


@pytest.fixture(name="host")
def _host(tmp_path: Path) -> FakeHost:
    host = FakeHost(tmp_path)
    host.put(f"{PKI}/kubelet-client-2026-01-01-00-00-00.pem", "old", 0o600)
    host.put(f"{PKI}/kubelet-client-2026-02-02-00-00-00.pem", "new", 0o600)
    host.put(f"{PKI}/kubelet.key", "own", 0o600)
    host.put(f"{PKI}/kubelet.crt", "public", 0o644)
    link = tmp_path / PKI.lstrip("/") / "kubelet-client-current.pem"
    link.symlink_to(f"{PKI}/kubelet-client-2026-02-02-00-00-00.pem")
    return host


def test_as_the_kubelet_leaves_them_there_is_nothing_to_do(host: FakeHost) -> None:
    assert KIND.compare(spec(), host) is None
    assert KIND.compare(spec("/none/*.pem", "/none/file", f"{PKI}/none"), host) is None


def test_what_is_open_is_named_and_closed(host: FakeHost) -> None:
    dated = f"{PKI}/kubelet-client-2026-02-02-00-00-00.pem"
    Path(host.path(dated)).chmod(0o644)
    Path(host.path(f"{PKI}/kubelet.key")).chmod(0o640)
    change = converge(KIND, spec(), host)
    assert change is not None
    assert change.before == {dated: {"mode": "0644"}, f"{PKI}/kubelet.key": {"mode": "0640"}}
    assert change.after == {dated: {"mode": "0600"}, f"{PKI}/kubelet.key": {"mode": "0600"}}
    assert host.backups == [dated, f"{PKI}/kubelet.key"]
    assert Path(host.path(dated)).stat().st_mode & 0o777 == 0o600
    assert Path(host.path(f"{PKI}/kubelet.crt")).stat().st_mode & 0o777 == 0o644
    assert str(Path(host.path(f"{PKI}/kubelet-client-current.pem")).readlink()) == dated
    assert host.text(dated) == "new"


def test_a_stricter_mode_stays(host: FakeHost) -> None:
    Path(host.path(f"{PKI}/kubelet.key")).chmod(0o400)
    assert KIND.compare(spec(), host) is None


def test_the_target_counts_wherever_it_is(host: FakeHost) -> None:
    """The kubelet's folder is root's, so its links are believed; the file itself is what is compared."""
    elsewhere = host.put("/srv/keys/one.pem", "x", 0o644)
    link = Path(host.path(f"{PKI}/kubelet-server-current.pem"))
    link.symlink_to(elsewhere)
    change = converge(KIND, spec(), host)
    assert change is not None
    assert list(change.after) == ["/srv/keys/one.pem"]
    link.unlink()
    link.symlink_to("gone.pem")
    assert KIND.compare(spec(), host) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_the_owner_is_compared_too(host: FakeHost) -> None:
    os.chown(host.path(f"{PKI}/kubelet.key"), 4321, 0)
    change = converge(KIND, spec(), host)
    assert change is not None
    assert change.before == {f"{PKI}/kubelet.key": {"owner": "4321"}}


def test_a_pattern_may_stand_at_the_end_only() -> None:
    assert KIND.check(spec("/a/*/b.key"))
    assert KIND.check(spec("a.key"))
    assert KIND.check({**spec(), "mode": "x"})
    assert KIND.check(spec()) == []


def test_drift_is_shown_and_a_rollback_brings_the_mode_back(sandbox: Sandbox) -> None:
    key = sandbox.root / "etc/app.key"
    key.write_text("PRIVATE")
    key.chmod(0o644)
    resource = {"kind": "private_files", "id": "s", "paths": ["/etc/*.key"], **OWNER}
    missing = {"url_path": "/none", "sha256": "0" * 64, "size": 1}
    failing = {"kind": "artifact", "id": "z", "path": "/opt/x", **missing}
    assert sandbox.run(resource, failing)["rolled_back"] == ["l/z", "l/s"]
    assert key.stat().st_mode & 0o777 == 0o644
    (change,) = sandbox.run(resource)["changes"]
    assert change["before"] == {"/etc/app.key": {"mode": "0644"}}
    assert "PRIVATE" not in repr(change)
    assert key.stat().st_mode & 0o777 == 0o600
    assert sandbox.changed(resource) == []
