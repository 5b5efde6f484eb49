# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Writing operating systems again: a node of the cluster on such a server leaves first."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import Context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.servers import nodes_leave
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import Step


def steps(context: Context) -> list[Step]:
    """Return how nodes on the servers leave, and what makes them nodes again. Raises as ``nodes_leave``."""
    found = nodes_leave(context)
    gone = [step.target for step in found if step.action == "delete-node"]
    again = [
        Step("node-add", name, f"afterwards {name} is a node again by: ironspan node add") for name in gone
    ]
    return [*found, *again]
