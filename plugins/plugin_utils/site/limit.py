# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What ``--limit`` leaves of a run. Plays on localhost are left out by it like any others."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

LEFT_OUT = (
    "--limit leaves localhost out: objects of the cluster are not applied and the cluster is not verified. "
    "Add ,localhost to the limit for that."
)


def limited_to(variables: Mapping[str, t.Any]) -> list[str] | None:
    """Return the hosts of this run when ``--limit`` leaves localhost out, None when it does not.

    Args:
        variables: the variables of a task or play; only ``hostvars`` is used.
    """
    try:
        manager = variables["hostvars"]._inventory
        if not manager._subset or manager.get_hosts("localhost", ignore_restrictions=True):
            return None
        return [str(host.name) for host in manager.get_hosts("all", ignore_restrictions=True)]
    except (AttributeError, KeyError):  # another ansible-core: as if there were no limit
        return None
