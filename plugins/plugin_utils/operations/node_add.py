# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Adding workers: only the new hosts and the API are contacted."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import nodes
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import declared_nodes
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.cordon import is_ready
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import Context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.workers import (
    insist_on_workers,
    join_step,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Host
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import Step


def steps(context: Context) -> list[Step]:
    """Return one step a host: those named, or all workers of the inventory that are no whole nodes yet.

    Raises:
        OperationError: a named host is no worker.
    """
    named = context.hosts
    if named:
        insist_on_workers(named)
        return [join_step(host) for host in named]
    return [join_step(host) for host in _missing(context)]


def _missing(context: Context) -> list[Host]:
    """Return the workers that are not in the cluster, not Ready, or without what the inventory gives them.

    The last are those of a run that was cut off after the host had joined.
    """
    found = context.nodes()
    declared = declared_nodes(context.site)
    return [
        host
        for host in context.site.group("nodes")
        if not host.in_group("control_plane")
        and (
            host.name not in found
            or not is_ready(found[host.name])
            or nodes.plan(found[host.name], declared[host.name]) is not None
        )
    ]
