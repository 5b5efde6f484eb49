# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Replacing the machine of a worker: the old one is emptied and forgotten, the new one joins by its name."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import replacements
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import dead_node
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import Context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.workers import (
    delete_step,
    emptying_steps,
    join_step,
    named_workers,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError, Step


def steps(context: Context) -> list[Step]:
    """Return the steps of the named hosts, in the order of the waves.

    A run that was cut off after the new machine had joined is told apart by the note of the old Node.

    Raises:
        OperationError: no worker is named, its pods must not be lost, or the machine at the address of the
            inventory is the old one and still runs.
    """
    hosts = named_workers(context, "node_replace")
    nodes = context.nodes()
    noted = replacements.noted(context.api())
    old = {name: node for name, node in nodes.items() if not replacements.is_new(noted, node)}
    running = [
        f"{host.name} at {host.address}"
        for host in hosts
        if host.name in old
        and dead_node.kubelet_endpoint(old[host.name])[0] == host.address
        and dead_node.kubelet_answers(old[host.name])
    ]
    if running:
        raise OperationError(
            f"this is the machine to be replaced, and its kubelet runs: {', '.join(running)}",
            "power it off, put the new one in its place and run this again; or take it out in order with "
            "node_remove, and add the new one with node_add",
        )
    found: list[Step] = []
    for name, emptying in emptying_steps(context, hosts, old).items():
        host = context.site.hosts[name]
        found += [*emptying, *([delete_step(host)] if name in old else []), join_step(host)]
    return found
