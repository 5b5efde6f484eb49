# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Keys that sign backups, as the PKI store makes them and hosts get them."""

from __future__ import annotations

import base64
import hashlib
import typing as t
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ironspan.backup.proof import PARTS, Proof


def private(part: str, version: str = "1", site: str = "ours") -> bytes:
    """Return a private key, always the same one."""
    return hashlib.sha256(f"{site} {part} {version}".encode()).digest()


def public(part: str, version: str = "1", site: str = "ours") -> bytes:
    """Return the public key of a private one."""
    key = Ed25519PrivateKey.from_private_bytes(private(part, version, site))
    return key.public_key().public_bytes_raw()


def proof(*parts: str, versions: t.Sequence[str] = ("1",), site: str = "ours") -> Proof:
    """Return what a host has that signs for these parts, by default for all."""
    trusted = {part: {version: public(part, version, site) for version in versions} for part in PARTS}
    return Proof(trusted, {part: private(part, versions[-1], site) for part in parts or PARTS})


def proof_settings(folder: Path) -> dict[str, t.Any]:
    """Return ``proof`` of the settings of a host that signs everything, its keys in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        (folder / f"{part}-1.key").write_bytes(base64.b64encode(private(part)) + b"\n")
    return {
        "trusted": {part: {"1": base64.b64encode(public(part)).decode()} for part in PARTS},
        "sign": {part: str(folder / f"{part}-1.key") for part in PARTS},
    }
