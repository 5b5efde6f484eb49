# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Servers that are nodes of the cluster: which are, and how a node leaves before its server is wiped."""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import Context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.workers import (
    insist_on_workers,
    leaving_steps,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import value_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError, Step

SERVERS, NO_CLUSTER = "ironspan_servers", "ironspan_no_cluster"


def nodes_on(context: Context, named: Sequence[str]) -> dict[str, Object] | None:
    """Return the nodes of the cluster by their names; None where there is said to be no cluster.

    Args:
        context: of the operation.
        named: servers, as their file calls them.

    Raises:
        OperationError: a server is a control plane or an etcd member, the cluster cannot be asked, or the
            inventory lacks one of its nodes.
    """
    known = context.site.hosts
    insist_on_workers([known[name] for name in named if name in known])
    if value_of(context.arguments, NO_CLUSTER):
        return None
    try:
        nodes = context.nodes()
    except ClusterError as error:
        raise OperationError(
            f"the cluster cannot be asked whether it has nodes on these servers: {error}",
            f"if there is no cluster yet, write -e {NO_CLUSTER}=true (ironspan: --no-cluster)",
        ) from None
    if lost := [name for name in named if name in nodes and name not in known]:
        raise OperationError(
            f"{', '.join(lost)}: nodes of the cluster, and no hosts of the inventory of {context.site.name}",
            "put them back into the inventory, or drain and delete them with kubectl first",
        )
    return nodes


def nodes_leave(context: Context) -> list[Step]:
    """Return how the nodes on the named servers leave the cluster; none for servers that are no nodes.

    What is done to a server itself stands with it in the plan.

    Raises:
        OperationError: none is named, one is a control plane or an etcd member, the cluster cannot be asked,
            the inventory lacks one of its nodes, or a node holds pods that must not be lost.
    """
    named = [str(name) for name in value_of(context.arguments, SERVERS)]
    if not named:
        raise OperationError("no server is named", "name servers of the file of expected servers")
    nodes = nodes_on(context, named)
    if nodes is None:
        return []
    return leaving_steps(context, [context.site.hosts[name] for name in named if name in nodes], nodes)
