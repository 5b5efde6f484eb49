# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A key, its request and its certificate through the whole engine, with the real openssl."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.engine import run

from .test_certificate import AUTHORITY, CSR


def document() -> dict[str, Any]:
    key = {"kind": "key_and_csr", "id": "etcd/key", "key_path": "/etc/pki/a.key", "csr": CSR}
    certificate = {
        "kind": "certificate",
        "id": "etcd/server",
        "path": "/etc/pki/a.crt",
        "key": "etcd/key",
        "profile": "etcd-server",
        "issuer_sha256": AUTHORITY.sha256,
    }
    return {
        "schema": 1,
        "resources": [{"kind": "directory", "id": "etcd/pki", "path": "/etc/pki"}, key, certificate],
    }


def test_two_executions_make_a_certificate(tmp_path: Path) -> None:
    params = {"document": document(), "root": str(tmp_path)}
    check = run(params, check_mode=True)
    assert check["csrs"] == {}
    assert list(tmp_path.iterdir()) == []

    first = run(params)
    assert "failed" not in first, first
    assert [change["resource"] for change in first["changes"]] == ["etcd/pki", "etcd/key"]
    assert first["pending"] == [{"resource": "etcd/server", "needs": "certificate:etcd/server"}]
    assert set(first["csrs"]) == {"etcd/server"}

    signed = {"etcd/server": AUTHORITY.sign(first["csrs"]["etcd/server"])}
    second = run({**params, "certificates": signed})
    assert "failed" not in second, second
    assert [change["resource"] for change in second["changes"]] == ["etcd/server"]
    assert (tmp_path / "etc/pki/a.crt").read_text() == signed["etcd/server"]

    third = run(params)
    assert (third["changed"], third["pending"], third["csrs"]) == (False, [], {})


def test_an_unfit_certificate_is_refused_and_the_host_is_as_before(tmp_path: Path) -> None:
    params = {"document": document(), "root": str(tmp_path)}
    csrs = run(params)["csrs"]
    signed = {"etcd/server": AUTHORITY.sign(csrs["etcd/server"], common_name="somebody")}
    result = run({**params, "certificates": signed})
    assert result["failed_resource"] == "etcd/server"
    assert "other common name" in result["msg"]
    assert not (tmp_path / "etc/pki/a.crt").exists()
    assert (tmp_path / "etc/pki/a.key").exists()
