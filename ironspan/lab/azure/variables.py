# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What an inventory says about the emulated Azure: the store of backups and who manages it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ironspan.lab import files
from ironspan.lab.azure import settings
from ironspan.lab.azure.config import authority, state_folder
from ironspan.lab.layout import Layout

#: The service account that the controller is in the lab's cluster.
_ISSUER = "https://issuer.lab.internal"
_SUBJECT = "system:serviceaccount:lab:controller"
_YEAR_S = 365 * 86400


def backup(layout: Layout, lab: Path) -> dict[str, Any]:
    """Return the variables with which the lab in folder `lab` backs its etcd up to the emulated store.

    Args:
        layout: The lab.
        lab: Its folder.

    Returns:
        The variables of the role etcd_backup, and those of playbooks/backup_store.yml.
    """
    identities = settings.IDENTITIES
    credential = {"kind": "managed_identity", "client_id": identities["writer"].client_id}
    return {
        **stores(settings.ACCOUNT, credential),
        "etcd_backup_containers": [
            {
                "subscription": settings.SUBSCRIPTION,
                "resource_group": settings.RESOURCE_GROUP,
                "account": settings.ACCOUNT,
                "container": settings.CONTAINER,
                "retention_days": 1,
                "writers": [identities["writer"].object_id],
                "collectors": [identities["collector"].object_id],
                "readers": [identities["reader"].object_id],
            }
        ],
        "etcd_backup_management": management(layout, lab),
    }


def stores(account: str, credential: Mapping[str, str]) -> dict[str, Any]:
    """Return the variable that has etcd backed up to the container of an account.

    Args:
        account: Its name.
        credential: Who writes there.
    """
    store = {
        "kind": "azure",
        "account_url": f"https://{account}.blob.core.windows.net",
        "container": settings.CONTAINER,
        "credential": dict(credential),
        "ca": settings.HOST_CA,
    }
    return {"etcd_backup_stores": [store]}


def management(layout: Layout, lab: Path) -> dict[str, Any]:
    """Return who manages the subscription of the lab in folder `lab`, and where."""
    folder, endpoint = state_folder(lab), f"https://{layout.azure_site.endpoint}"
    return {
        "kind": "workload_identity",
        "tenant_id": settings.TENANT,
        "client_id": settings.IDENTITIES["operator"].client_id,
        "token_file": str(token_file(folder)),
        "authority": endpoint,
        "url": endpoint,
        "ca": str(authority(folder)),
    }


def token_file(folder: Path) -> Path:
    """Where the controller finds the token that the login service exchanges."""
    return folder / "controller.token"


def write_token(folder: Path) -> dict[str, Any]:
    """Write the controller's token unless it is there.

    Returns:
        The federated credential (arguments of the command `federate`) under which it is accepted.
    """
    from ironspan.lab.azure.tokens import Signer

    signer = Signer.at(folder / "keys" / "cluster.pem")
    now = int(time.time())
    claims = {"aud": "api://AzureADTokenExchange", "iss": _ISSUER, "sub": _SUBJECT}
    if not token_file(folder).exists():
        token = signer.sign({**claims, "iat": now, "nbf": now, "exp": now + _YEAR_S})
        files.write_atomic(token_file(folder), token, 0o600)
    return {
        "client_id": settings.IDENTITIES["operator"].client_id,
        "issuer": _ISSUER,
        "subject": _SUBJECT,
        "keys": [signer.jwk()],
    }
