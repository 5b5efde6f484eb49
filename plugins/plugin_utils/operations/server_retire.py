# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Retiring servers: refused for one on which a node of the cluster runs."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import Context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.server_redeploy import (
    insist_on_no_nodes,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import Step


def steps(context: Context) -> list[Step]:
    """Return none: what is done to a server stands with it in the plan.

    Raises:
        OperationError: a named server is a node, or nobody can tell.
    """
    insist_on_no_nodes(context)
    return []
