# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Hosts go back to a document that was applied to them before. What that is, each host knows."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import (
    HOSTS_VARIABLE,
    Context,
    named_hosts,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.step import OperationError, Step
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Host

HOSTS = "targets"
SECONDS = 20
"""Files and restarts of services; what has to be fetched again takes longer."""


def steps(context: Context) -> list[Step]:
    """Return one step a host.

    Raises:
        OperationError: no host was named.
    """
    to = str(context.arguments.get("ironspan_to") or "")
    where = f"the document {to}" if to else "the document applied before"
    return [
        Step(
            "rollback",
            host.name,
            f"take {host.name} back to {where}",
            disruption="services whose files differ restart",
            seconds=SECONDS,
        )
        for host in _hosts(context)
    ]


def _hosts(context: Context) -> list[Host]:
    """Return the hosts that were named, of groups all that they have."""
    value = context.arguments.get(HOSTS_VARIABLE)
    names = [str(name).strip() for name in (value.split(",") if isinstance(value, str) else value or ())]
    expanded: list[str] = []
    for name in filter(None, names):
        members = [host.name for host in context.site.hosts.values() if name == "all" or name in host.groups]
        expanded += [name] if name in context.site.hosts or not members else members
    if not expanded:
        raise OperationError(
            "no host was named",
            f"write which ones go back: -e {HOSTS_VARIABLE}=HOST,... (ironspan rollback HOST)",
        )
    return named_hosts(context.site, expanded)
