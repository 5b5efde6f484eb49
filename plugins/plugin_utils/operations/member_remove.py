# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Removing etcd members and control planes: the others follow first, then the host leaves."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import Context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.membership import (
    Members,
    following,
    leaving_steps,
    named_members,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Host
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError, Step


def steps(context: Context) -> list[Step]:
    """Return the steps: nobody talks to a leaving host any more when it goes.

    Raises:
        OperationError: no host is named, a quorum would be lost, or the last of its sort would go.
    """
    hosts = named_members(context, "member_remove")
    _insist_that_some_stay(context, hosts)
    members = Members(context.session)
    leaving = {host.name for host in hosts}
    removals = {host.name: members.remove(host) if host.in_group("etcd") else [] for host in hosts}
    nodes = context.nodes()
    found = following(context, hosts, leaving, leaving=True)
    for host in hosts:
        found += [*removals[host.name], *leaving_steps(host, nodes, "everything of ironspan")]
    return found


def _insist_that_some_stay(context: Context, hosts: list[Host]) -> None:
    site = context.site
    names = {host.name for host in hosts}
    for group, what in (("control_plane", "control plane"), ("haproxy", "load balancer of the API")):
        members = {host.name for host in site.group(group)}
        if members and members <= names:
            raise OperationError(
                f"without {', '.join(sorted(members))} the site has no {what}",
                f"add another one first (a host in the group {group})",
            )
    holder = [host.name for host in hosts if host.address == site.api_address]
    if holder:
        raise OperationError(
            f"{holder[0]} holds the API's address {site.api_address}",
            "give the API another address first (site_api_address), and apply that with site.yml",
        )
