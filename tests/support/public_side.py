# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the PKI store that is enough to render documents."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.encryption_state import Encryption

UID = "5f0c1e6a9b7d"


class PublicSide:
    """What documents need of a PKI store."""

    def uid(self) -> str:
        """Return the site's identity."""
        return UID

    def certificate_pem(self, name: str) -> str:
        """Return a text that tells which authority was asked for."""
        return f"certificate of {name}\n"

    def sha256(self, name: str) -> str:
        """Return 64 decimal digits, which YAML takes for a number when a template forgets quotes."""
        return {"etcd": "1", "kubernetes": "2", "front-proxy": "3"}[name] * 64

    def signing_pem(self, name: str) -> str:
        """Return a text that tells which authority was asked for."""
        return f"signing certificate of {name}\n"

    def secret_name(self, name: str) -> str:
        """Return the name of a secret as a store that was never changed has it."""
        return "service-account-key" if name == "service-account" else f"{name}-ca-key"

    def backup_keys(self) -> list[int]:
        """Return the versions of the keys for backups."""
        return [1, 2]

    def backup_signers(self) -> dict[str, list[str]]:
        """Return public keys: two of the writer, so that a rotation is seen, and one for drills."""
        return {"writer": ["V" * 43 + "=", "W" * 43 + "="], "drill": ["D" * 43 + "="]}

    def recovery_stamp(self) -> str:
        """Return decimal digits, which YAML takes for a number when a template forgets quotes."""
        return "4" * 16

    def encryption(self) -> Encryption:
        """Return that secrets were never encrypted."""
        return Encryption()

    def peers_named(self) -> bool:
        """Return that all members have the name of peers."""
        return True

    def ironic(self) -> dict[str, t.Any]:
        """Return the names of the secrets of an Ironic whose password and key were changed once."""
        keys = [{"name": f"ironic-backup-key-{number}", "version": number} for number in (1, 2)]
        return {"password": "ironic-password-2", "keys": keys}

    def events(self) -> dict[str, str]:
        """Return the names of secrets that were changed once."""
        return {"token": "events-token-2", "account": "events-account-2"}

    def bmc_pem(self) -> str:
        """Return a text that tells what was asked for."""
        return "certificate of bmc\n"

    def trust_stamp(self) -> str:
        """Return a text."""
        return "unchanged"

    def service_account_public_pem(self) -> str:
        """Return a text that tells what was asked for."""
        return "public key of service accounts\n"
