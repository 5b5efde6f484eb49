# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Proof that nodes carry pods after they were turned over: pods on them and on others reach each other."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cilium.migration import is_moved
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import smoke, smoke_run
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.expectations import Expected
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.cordon import is_in_service

Network = ipaddress.IPv4Network


def problems(
    api: Api,
    expected: Expected,
    turned: Collection[str],
    networks: tuple[Network, Network],
    seconds: int,
    say: Callable[[str], None],
) -> list[str]:
    """Run small pods on the nodes and on one witness of each network; return what does not work.

    Args:
        api: the cluster.
        expected: its nodes.
        turned: names of the nodes that were turned over.
        networks: that of pods of nodes that are not moved, and that of nodes that are.
        seconds: how long the pods try.
        say: told how many have answered.
    """
    nodes = {str(node["metadata"]["name"]): node for node in api.get("/api/v1/nodes")["items"]}
    chosen = {*turned, *witnesses(nodes, turned)}
    layout = smoke.lay_out(
        [smoke.SmokeNode(n.name, n.control_plane, n.gvisor) for n in expected.nodes if n.name in chosen]
    )
    results = smoke_run.run(api, layout, expected.cluster_domain, seconds, expected.image, say)
    return list(judged(results, {name: networks[is_moved(node)] for name, node in nodes.items()}))


def witnesses(nodes: Mapping[str, Object], turned: Collection[str]) -> list[str]:
    """Return a node in service of each network that was not turned over, where there is one."""
    found: dict[bool, str] = {}
    for name, node in sorted(nodes.items()):
        if name not in turned and is_in_service(node):
            found.setdefault(is_moved(node), name)
    return list(found.values())


def judged(results: Sequence[smoke_run.PodResult], networks: Mapping[str, Network]) -> Iterator[str]:
    """Say what is wrong with each pod: what it found, and its address in the other network."""
    for result in results:
        where = f"{result.runtime} pod on {result.node}"
        if result.problem:
            yield f"{where}: {result.problem}"
        elif ipaddress.ip_address(result.address) not in networks[result.node]:
            yield f"{where}: its address {result.address} is not in {networks[result.node]}"
