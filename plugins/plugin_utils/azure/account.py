# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a storage account has to be like before backups go there. Checked, never changed."""

from __future__ import annotations

import typing as t


def plain(value: t.Any) -> str:
    """Return the text of a value of the SDK, which may be an enumeration's or None."""
    return str(getattr(value, "value", value) or "")


def faults(name: str, account: t.Any) -> list[str]:
    """Return what is wrong with an account, each with the command that puts it right.

    Args:
        name: of the account.
        account: ``StorageAccount`` of azure-mgmt-storage.
    """
    update = f"az storage account update --name {name}"
    checks = (
        # None is what accounts have that never set it, and means allowed.
        (
            account.allow_shared_key_access is False,
            "accepts account keys and signed URLs",
            f"{update} --allow-shared-key-access false",
        ),
        (
            account.allow_blob_public_access is False,
            "allows containers to be public",
            f"{update} --allow-blob-public-access false",
        ),
        (
            plain(account.public_network_access).lower() == "disabled",
            "can be reached from the internet",
            f"make a private endpoint for it, then {update} --public-network-access Disabled",
        ),
        (
            account.enable_https_traffic_only is not False,
            "accepts requests without TLS",
            f"{update} --https-only true",
        ),
        (
            plain(account.minimum_tls_version) not in ("", "TLS1_0", "TLS1_1"),
            "accepts TLS older than 1.2",
            f"{update} --min-tls-version TLS1_2",
        ),
    )
    return [f"the account {name} {what}; {remedy}" for right, what, remedy in checks if not right]
