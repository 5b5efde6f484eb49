# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The command that signs images of the mirror. What nodes make of signatures: tests/unit/hardening."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)

from ironspan.artifacts import cache, image
from ironspan.cli.main import main

IMAGE = "registry.example.com/team/app:1"
MANIFEST = b'{"schemaVersion": 2}'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of an image in a mirror of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = cache.Cache().below_mirror("/v2/registry.example.com/team/app/manifests")
    folder.mkdir(parents=True)
    (folder / "1").write_bytes(MANIFEST)
    return folder


def key_file(
    path: Path,
    key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey,
    sealed: KeySerializationEncryption | None = None,
) -> Path:
    """Write a private key."""
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, sealed or NoEncryption()))
    return path


def test_an_image_is_signed_once_a_key(folder: Path, tmp_path: Path) -> None:
    signatures = folder / f"{image.digest(MANIFEST).replace(':', '-')}.sig"
    for name, count in (("one", 1), ("one", 1), ("two", 2)):
        key = tmp_path / name
        if not key.exists():
            key_file(key, ec.generate_private_key(ec.SECP256R1()))
        assert main(["artifacts", "sign", "--key", str(key), IMAGE]) == 0
        assert len(json.loads(signatures.read_text())["layers"]) == count


@pytest.mark.parametrize(
    "name", ["registry.example.com/team/app:2", "app", "../../app:1", f"{IMAGE}@sha256:0"]
)
def test_an_image_that_is_not_there(folder: Path, tmp_path: Path, name: str) -> None:
    key = key_file(tmp_path / "key", ec.generate_private_key(ec.SECP256R1()))
    before = sorted(folder.rglob("*"))
    assert main(["artifacts", "sign", "--key", str(key), name]) == 2
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("kind", ["missing", "empty", "sealed", "Ed25519"])
def test_keys_that_cannot_sign(
    folder: Path, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "key"
    if kind == "empty":
        path.write_text("")
    elif kind == "sealed":
        key_file(path, ec.generate_private_key(ec.SECP256R1()), BestAvailableEncryption(b"x"))
    elif kind == "Ed25519":
        key_file(path, ed25519.Ed25519PrivateKey.generate())
    assert main(["artifacts", "sign", "--key", str(path), IMAGE]) == 2
    assert str(path) in "".join(capsys.readouterr())
    assert not list(folder.glob("*.sig"))
