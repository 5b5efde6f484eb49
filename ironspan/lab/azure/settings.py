# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Who and what there is in the emulated Azure: names, identities, roles."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

ACCOUNT = "labstore"
CONTAINER = "etcd"
BLOB_HOST = f"{ACCOUNT}.blob.core.windows.net"
LOGIN_HOST = "login.microsoftonline.com"
MANAGEMENT_HOST = "management.azure.com"
#: Names that lead to the private address; the second is what a private DNS zone makes the first an alias of.
SERVICE_NAMES = (LOGIN_HOST, MANAGEMENT_HOST)
NAMES = (BLOB_HOST, f"{ACCOUNT}.privatelink.blob.core.windows.net", *SERVICE_NAMES)
#: Names of accounts and vaults that estates declare, as the certificate has them.
DECLARED_NAMES = ("*.blob.core.windows.net", "*.vault.azure.net")
#: Where hosts find the authority to trust, beside others that are not Debian's.
HOST_CA = "/usr/local/share/ca-certificates/lab-azure.crt"
#: Where Azure's instance metadata service answers, in every virtual network.
METADATA_ADDRESS = "169.254.169.254"
RESOURCE_GROUP = "lab"


def identifier(what: str) -> str:
    """Return the UUID that stands for `what`: the same in every lab, so that inventories can name it."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{what}.lab.internal"))


TENANT = identifier("tenant")
SUBSCRIPTION = identifier("subscription")


def account_id() -> str:
    """Return the resource id of the account of backups, which every lab has."""
    return (
        f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{RESOURCE_GROUP}"
        f"/providers/Microsoft.Storage/storageAccounts/{ACCOUNT}"
    )


_READ = frozenset({"containers/read", "blobs/read"})
_WRITE = frozenset({"blobs/write", "blobs/add"})
_DELETE = frozenset({"blobs/delete"})
#: Data actions of each role, as in a custom role definition (without their common prefix).
ROLES: dict[str, frozenset[str]] = {
    "writer": _READ | _WRITE,
    "collector": _READ | _DELETE,
    "reader": _READ,
    "operator": _READ | _WRITE | _DELETE | {"containers/write", "containers/delete", "management"},
    "none": frozenset(),
}


class Principal(Protocol):
    """Whom a token is for."""

    @property
    def client_id(self) -> str:
        """What a program names it by."""

    @property
    def object_id(self) -> str:
        """What role assignments name it by."""

    @property
    def resource_id(self) -> str:
        """Its name in the resource manager."""


@dataclass(frozen=True)
class Assigned:
    """An identity that an estate made and gave to a machine; the lab's own services give it no role."""

    resource_id: str
    client_id: str
    object_id: str


@dataclass(frozen=True)
class Identity:
    """A user-assigned managed identity and the one role that it has."""

    name: str

    @property
    def client_id(self) -> str:
        """What a program names it by."""
        return identifier(f"client-{self.name}")

    @property
    def object_id(self) -> str:
        """What role assignments name it by (`oid` in its tokens)."""
        return identifier(f"object-{self.name}")

    @property
    def resource_id(self) -> str:
        """Its name in the resource manager."""
        return (
            f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{RESOURCE_GROUP}"
            f"/providers/Microsoft.ManagedIdentity/userAssignedIdentities/{self.name}"
        )

    @property
    def actions(self) -> frozenset[str]:
        """What it may do."""
        return ROLES[self.name]


#: One identity a role, called like it; "none" is an identity that nobody gave a role.
IDENTITIES: dict[str, Identity] = {name: Identity(name) for name in ROLES}
_BY_OBJECT = {identity.object_id: identity for identity in IDENTITIES.values()}


def by_object(object_id: object) -> Identity | None:
    """Return the identity whose tokens carry this `oid`."""
    return _BY_OBJECT.get(str(object_id))


def chosen(
    client_id: str = "", object_id: str = "", resource_id: str = "", assigned: Iterable[Assigned] = ()
) -> Principal | None:
    """Return the identity that a token request names.

    Args:
        client_id: Its client id, or empty.
        object_id: Its object id, or empty.
        resource_id: Its resource id, or empty.
        assigned: The identities of the machine that asks, beside the lab's own, which every machine has.

    Returns:
        The identity; when none is named the machine's only one, or the writer for a machine without any.
    """
    own = list(assigned)
    if not (client_id or object_id or resource_id):
        if own:
            return own[0] if len(own) == 1 else None
        return IDENTITIES["writer"]
    known: list[Principal] = [*own, *IDENTITIES.values()]
    for identity in known:
        given = (client_id, object_id, resource_id.lower())
        if any(
            value and value == its
            for value, its in zip(
                given, (identity.client_id, identity.object_id, identity.resource_id.lower()), strict=True
            )
        ):
            return identity
    return None
