# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What has a name by the rule, and what its kind allows: the keys of ``azure_names``."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.model import Estate
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.route_tables import route_tables

NAMED: Mapping[str, str] = {
    "resource": "azure_resource",
    "identity": "azure_identity",
    "vault key": "azure_vault_key",
}
"""Kind -> grammar of its names."""


def logical_names(estate: Estate) -> dict[str, str]:
    """Return what of an estate is named by the rule, and its kind; no two of a kind have one name.

    Args:
        estate: the estate.
    """
    found: dict[str, str] = {}

    def add(kind: str, *what: str) -> None:
        found.update(dict.fromkeys(what, kind))

    if not estate.network_exists:
        add("resource", *(f"nsg-{what}" for what in ("control", "nodes", "endpoints")))
        if estate.outbound.kind == "nat":
            add("resource", "nat", *(f"nat-{index + 1}" for index in range(estate.outbound.addresses)))
        add("resource", *route_tables(estate))
    add("resource", "net")
    if estate.api:
        add("resource", "load-balancer")
    for machine in estate.machines:
        add("resource", f"nic-{machine.name}", f"os-{machine.name}")
        if machine.disk:
            add("resource", f"etcd-{machine.name}")
    add("resource", *(f"fabric-{machine.fabric}" for machine in estate.machines if machine.fabric))
    add("resource", *(f"pool-{pool.name}" for pool in estate.pools))
    add("identity", *(f"id-{machine.name}" for machine in estate.machines))
    add("identity", *(f"id-{pool.name}" for pool in estate.pools))
    if estate.vault:
        add("resource", "endpoint-vault", "nic-endpoint-vault")
        add("vault key", *(f"key-{purpose}" for purpose in estate.vault.keys))
    endpoints = ["backup"] if estate.backup else []
    endpoints += [
        name for one in estate.storage for name in (one.name, f"{one.name}-dfs")[: 1 + one.hierarchical]
    ]
    endpoints += [one.name for one in estate.endpoints]
    add("resource", *(f"{start}-{name}" for name in endpoints for start in ("endpoint", "nic-endpoint")))
    if estate.gateway:
        add("resource", "gateway", "gateway-1", "gateway-2", "connection-circuit")
        if estate.gateway.peers:
            add("identity", "id-gateway")
        for peer in estate.gateway.peers:
            add("resource", f"router-{peer.name}", f"connection-{peer.name}")
    return found
