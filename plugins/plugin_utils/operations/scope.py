# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which hosts a run is about: nothing is rendered for others, so a new node costs the same in any site."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations import OPERATIONS
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site


def rendered_hosts(
    operation: str, site: Site, variables: Mapping[str, t.Any], *, planning: bool = False
) -> list[str] | None:
    """Return the hosts whose documents a run needs, None for all.

    Args:
        operation: name of the operation, "" for none.
        site: from the inventory.
        variables: of the run, with the hosts that the operator named.
        planning: a plan is made, which compares others as well.

    Raises:
        OperationError: the inventory has no such host.
    """
    if operation not in OPERATIONS:
        return None
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import (
        HOSTS_VARIABLE,
        named_hosts,
        touches_cluster,
    )

    if not touches_cluster(operation):
        return []

    if planning or not OPERATIONS[operation].only_named:
        return None
    return [host.name for host in named_hosts(site, variables.get(HOSTS_VARIABLE))] or None
