# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What an estate has beside network and machines: keys, storage, private endpoints, the way to the racks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, slots=True)
class Vault:
    """A Key Vault with the keys of the site.

    Args:
        name: globally unique.
        id: its resource id.
        exists: it is there already and only referenced.
        keys: purpose -> name of the key; purposes are ``kms``, ``pki`` and ``backup``.
        administrators: object ids of those who work with the PKI store's key.
        hsm: keys are kept in hardware.
    """

    name: str
    id: str
    exists: bool
    keys: Mapping[str, str]
    administrators: tuple[str, ...]
    hsm: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Backup:
    """The account and container that backups of etcd go to.

    Args:
        account: globally unique name.
        id: its resource id.
        exists: it is there already and only referenced.
        container: name.
        retention_days: days for which nothing can be deleted or overwritten there.
        redundancy: such as ``GZRS``.
        collectors: object ids of identities that delete what retention lets go.
        readers: object ids of identities that restore from it.
    """

    account: str
    id: str
    exists: bool
    container: str
    retention_days: int
    redundancy: str
    collectors: tuple[str, ...]
    readers: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Storage:
    """An account for weights or checkpoints.

    Args:
        name: what the site calls it.
        account: globally unique name.
        id: its resource id.
        exists: it is there already and only referenced.
        containers: names.
        hierarchical: folders are real (Data Lake Storage); needs a second private endpoint.
        redundancy: such as ``ZRS``.
        readers: pools, groups of machines and object ids that read.
        writers: the same for those that read and write.
        cool_after_days: days after the last change until data get cheaper to keep; 0 is never.
        delete_after_days: days after which they are deleted; 0 is never.
    """

    name: str
    account: str
    id: str
    exists: bool
    containers: tuple[str, ...]
    hierarchical: bool
    redundancy: str
    readers: tuple[str, ...]
    writers: tuple[str, ...]
    cool_after_days: int
    delete_after_days: int


@dataclasses.dataclass(frozen=True, slots=True)
class Endpoint:
    """A private endpoint for a resource that somebody else made, such as Cosmos DB or PostgreSQL.

    Args:
        name: what the site calls it.
        resource: its id.
        group: part of the service, as Azure calls it: ``Sql``, ``postgresqlServer``.
    """

    name: str
    resource: str
    group: str


@dataclasses.dataclass(frozen=True, slots=True)
class Peer:
    """A router of the racks at the other end of a VPN.

    Args:
        name: what the site calls it.
        address: public address of the router.
        asn: number of its autonomous system.
        bgp_address: address that it speaks BGP from.
        certificate: address of the certificate in a vault that the gateway shows it.
        subject: subject of the certificate that the router shows.
        chain: authorities of that certificate, base64.
    """

    name: str
    address: str
    asn: int
    bgp_address: str
    certificate: str
    subject: str
    chain: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Gateway:
    """The way to the racks.

    Args:
        kind: ``vpn`` or ``express_route``.
        size: Azure's name of the gateway's size.
        asn: number of Azure's autonomous system.
        peers: routers at the other end of a VPN.
        circuit: id of the circuit of an ExpressRoute.
        identity: resource id of the gateway's own identity.
    """

    kind: str
    size: str
    asn: int
    peers: tuple[Peer, ...]
    circuit: str
    identity: str = ""
