# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The Key Vault and its keys, made through the resource manager: no access to its data is needed for that."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.access import Grant, add_grant
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.build import Builder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.endpoints import add_endpoint
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.model import CONTROL_PLANE, ETCD, Estate
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.services import Vault

ENCRYPTION_USER = "e147488a-f6f5-4113-8e2d-b22465e65bf6"
"""Key Vault Crypto Service Encryption User: read a key, wrap and unwrap with it."""
CRYPTO_USER = "12338af0-0e69-4776-bea7-57ae8d297424"
"""Key Vault Crypto User: use a key in every way."""
_USERS = {"kms": CONTROL_PLANE, "backup": ETCD}
"""Purpose of a key -> the group of the machines that use it."""
_VAULT = "Microsoft.KeyVault/vaults"
_KEY_BITS = 3072
_DAYS_DELETED = 90


def add_vault(build: Builder) -> None:
    """Add the vault with its keys, who may use which, and its endpoint."""
    vault = build.estate.vault
    if vault is None:
        return
    keys = {} if vault.exists else _vault(build, vault)
    for purpose, key in keys.items():
        for grant in _grants(build.estate, vault, purpose, key):
            add_grant(build, grant)
    add_endpoint(build, "vault", vault.id, "vault")


def key_id(vault: Vault, purpose: str) -> str:
    """Return the resource id of a key."""
    return f"{vault.id}/keys/{vault.keys[purpose]}"


def _vault(build: Builder, vault: Vault) -> dict[str, str]:
    made = build.add(
        _VAULT,
        vault.name,
        {
            "tenantId": build.estate.tenant,
            "sku": {"family": "A", "name": "premium" if vault.hsm else "standard"},
            "enableRbacAuthorization": True,
            "enableSoftDelete": True,
            "softDeleteRetentionInDays": _DAYS_DELETED,
            # Nobody can end the site's secrets by deleting the vault for good.
            "enablePurgeProtection": True,
            "publicNetworkAccess": "Disabled",
            "networkAcls": {
                "bypass": "None",
                "defaultAction": "Deny",
                "ipRules": [],
                "virtualNetworkRules": [],
            },
        },
    )
    return {
        purpose: build.add(
            f"{_VAULT}/keys",
            f"{vault.name}/{name}",
            # Without an end: what a key that ended has wrapped could not be read any more.
            {
                "kty": "RSA-HSM" if vault.hsm else "RSA",
                "keySize": _KEY_BITS,
                "keyOps": ["wrapKey", "unwrapKey"],
                "attributes": {"enabled": True},
            },
            depends=[made],
        )
        for purpose, name in vault.keys.items()
    }


def _grants(estate: Estate, vault: Vault, purpose: str, key: str) -> list[Grant]:
    if purpose == "pki":
        return [Grant(key, CRYPTO_USER, principal=person) for person in vault.administrators]
    return [Grant(key, ENCRYPTION_USER, machine.identity) for machine in estate.in_group(_USERS[purpose])]
