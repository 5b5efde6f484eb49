# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Rules of security groups, from the table of what listens on hosts (``site/listeners.yml``)."""

from __future__ import annotations

import ipaddress
import re
import typing as t
from collections.abc import Collection, Iterable, Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.model import (
    NODES,
    Machine,
    Network,
    Pool,
    Rule,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import layers_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.listeners import LOOPBACK, all_listeners

_LOOPBACK = "127.0.0.1"


def groups_by_subnet(machines: Collection[Machine], pools: Collection[Pool]) -> dict[str, list[str]]:
    """Return the groups of the inventory that hosts of each subnet are in, for ``rules``."""
    found: dict[str, dict[str, None]] = {"control": {}, "nodes": {}}
    for machine in machines:
        found[machine.subnet].update(dict.fromkeys(machine.groups))
    for pool in pools:
        found["nodes"].update(dict.fromkeys((NODES, *pool.groups)))
    return {subnet: list(groups) for subnet, groups in found.items()}


def rules(
    groups: Mapping[str, Collection[str]],
    values: Mapping[str, t.Any],
    clients: Mapping[str, Iterable[Network]],
) -> Iterator[Rule]:
    """Yield what may be opened to whom, in the order of the table.

    A port that two programs of a subnet share, at different addresses or on different hosts, is one rule.

    Args:
        groups: subnet -> groups of the inventory of its hosts.
        values: variables of the site, defaults included.
        clients: who connects, as the table calls them -> their networks.
    """
    cni = str(values.get("site_cni") or "flannel")
    for subnet, members in groups.items():
        layers = layers_of(tuple(members), cni) if members else ()
        said: dict[tuple[str, int], Rule] = {}
        for row in all_listeners():
            if row.layer not in layers or not row.clients or not row.is_on(values):
                continue
            if row.groups and not set(row.groups) & set(members):
                continue
            port = row.port_on(values)
            networks = [one for client in row.clients for one in clients.get(client, ())]
            if (
                row.address == LOOPBACK
                or row.address_on(values, "") == _LOOPBACK
                or port is None
                or not networks
            ):
                continue
            key = (row.protocol, port)
            before = said.get(key)
            name = (
                before.name if before else f"allow-{re.sub('[^a-z0-9]+', '-', row.what.lower()).strip('-')}"
            )
            networks += map(Network, before.sources if before else ())
            said[key] = Rule(name, subnet, row.protocol, port, collapsed(networks))
        yield from said.values()


def collapsed(networks: Iterable[Network]) -> tuple[str, ...]:
    """Return networks without those that lie in others: Azure refuses overlapping ones in a rule."""
    return tuple(map(str, ipaddress.collapse_addresses(networks)))
