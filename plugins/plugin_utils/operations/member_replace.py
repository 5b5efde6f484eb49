# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Replacing an etcd member or a control plane: the old one is forgotten, the host joins again.

For a host whose disk is empty, whose data are wrong, which died and was built again at its address or at
another one; any host, the one that once started the cluster included.
"""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.etcd_cluster import peer_url
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import Context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.membership import (
    Members,
    events_anew,
    following,
    join_step,
    leaving_steps,
    named_members,
    unknown_elsewhere,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError, Step


def steps(context: Context) -> list[Step]:
    """Return the steps of the one host that is replaced.

    Raises:
        OperationError: none or several hosts are named, a quorum would be lost, or nobody is left to join.
    """
    hosts = named_members(context, "member_replace")
    if len(hosts) > 1:
        raise OperationError(
            f"{', '.join(host.name for host in hosts)}: members are replaced one after the other",
            "name one host, and the next one when it is a member again",
        )
    host = hosts[0]
    control_planes = context.site.group("control_plane")
    if host.in_group("control_plane") and len(control_planes) == 1:
        raise OperationError(
            f"{host.name} is the only control plane, so there is none that it could join",
            "add another one first (member_add); or reset it and run site.yml: etcd keeps the cluster",
        )
    found: list[Step] = []
    members = Members(context.session) if host.in_group("etcd") else None
    moved = False
    if members is not None:
        while (entry := members.entry(host)) is not None:
            moved = moved or peer_url(host) not in entry.peer_urls
            found += members.remove(host)
    nodes = context.nodes()
    found += leaving_steps(host, nodes, "membership")
    if members is not None:
        found += members.add(host)
    if moved:
        found += following(context, [host], [host.name])
    elif members is not None:
        found += events_anew(context.site, [host])
    return [*found, *([join_step(host)] if host.in_group("control_plane") else [])]


def left_for_site(steps: Sequence[Step]) -> list[str]:
    """Return what the next run of site.yml has to do."""
    return unknown_elsewhere(steps, "join")
