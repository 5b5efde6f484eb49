# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Hosts go back to a document that was applied to them before. What that is, each host knows."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import (
    HOSTS_VARIABLE,
    Context,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import value_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError, Step

SECONDS = 20
"""Files and restarts of services; what has to be fetched again takes longer."""


def steps(context: Context) -> list[Step]:
    """Return one step a host.

    Raises:
        OperationError: no host was named.
    """
    hosts = context.hosts
    if not hosts:
        raise OperationError(
            "no host was named",
            f"write which ones go back: -e {HOSTS_VARIABLE}=HOST,... (ironspan rollback HOST)",
        )
    to = value_of(context.arguments, "ironspan_digest") or ""
    where = f"the document {to}" if to else "the document applied before"
    return [
        Step(
            "rollback",
            host.name,
            f"take {host.name} back to {where}",
            disruption="services whose files differ restart",
            seconds=SECONDS,
        )
        for host in hosts
    ]
