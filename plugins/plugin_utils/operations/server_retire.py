# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Retiring servers: a node of the cluster on such a server leaves first."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import Context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.servers import nodes_leave
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import Step


def steps(context: Context) -> list[Step]:
    """Return how the nodes on the servers leave. Raises as ``nodes_leave``."""
    return nodes_leave(context)
