# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Writing operating systems again: refused for a server on which a node of the cluster runs."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import Context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import value_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError, Step

SERVERS, NO_CLUSTER = "ironspan_servers", "ironspan_no_cluster"


def steps(context: Context) -> list[Step]:
    """Return none: what is done to a server stands with it in the plan.

    Raises:
        OperationError: a named server is a node, or nobody can tell.
    """
    insist_on_no_nodes(context)
    return []


def insist_on_no_nodes(context: Context) -> None:
    """Refuse servers that the cluster has as nodes: what wipes them would end their pods.

    Raises:
        OperationError: one is a node, none is named, or the cluster cannot be asked.
    """
    named = [str(name) for name in value_of(context.arguments, SERVERS)]
    if not named:
        raise OperationError("no server is named", "name servers of the file of expected servers")
    if value_of(context.arguments, NO_CLUSTER):
        return
    try:
        nodes = context.nodes()
    except ClusterError as error:
        raise OperationError(
            f"the cluster cannot be asked whether it has nodes on these servers: {error}",
            f"if there is no cluster yet, write -e {NO_CLUSTER}=true (ironspan: --no-cluster)",
        ) from None
    running = [name for name in named if name in nodes]
    if running:
        raise OperationError(
            f"{', '.join(running)}: nodes of the cluster, with whatever runs on them",
            f"drain and remove them first: ironspan node remove {' '.join(running)} --allow-destructive",
        )
