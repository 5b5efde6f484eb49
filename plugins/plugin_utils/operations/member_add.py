# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Adding etcd members and control planes: one after the other, as learners until in sync."""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import Context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.membership import (
    Members,
    following,
    join_step,
    named_members,
    unknown_elsewhere,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError, Step


def steps(context: Context) -> list[Step]:
    """Return the steps of the named hosts; none for one that is a member already.

    Raises:
        OperationError: no host is named, etcd has no quorum, or an address is a member's that is listed.
    """
    hosts = named_members(context, "member_add")
    members = Members(context.session)
    found: list[Step] = []
    for host in hosts:
        if not host.in_group("etcd"):
            continue
        entry = members.entry(host)
        if entry is None or entry.learner or not entry.started:
            found += members.add(host)
        elif entry.name != host.name:
            raise OperationError(
                f"the address {host.address} of {host.name} is that of the member {entry.name or entry.id}, "
                "which etcd lists still",
                f"replace that member: ironspan apply member_replace -e ironspan_hosts={host.name}",
            )
    nodes = context.nodes()
    joining = [host for host in hosts if host.in_group("control_plane") and host.name not in nodes]
    names = {step.target for step in found} | {host.name for host in joining}
    coming = [host for host in hosts if host.name in names]
    return [*found, *following(context, coming, [host.name for host in joining]), *map(join_step, joining)]


def left_for_site(steps: Sequence[Step]) -> list[str]:
    """Return what the next run of site.yml has to do."""
    return unknown_elsewhere(steps, "join")
