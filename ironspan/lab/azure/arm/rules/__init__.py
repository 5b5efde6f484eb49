# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What each resource type means: what it needs, what it becomes, what keeps it from being deleted."""

from __future__ import annotations

from ironspan.lab.azure.arm.rules import access, compute, interfaces, network, private, scale_sets, services
from ironspan.lab.azure.arm.rules.common import Rules

_NONE = Rules()
_BY_TYPE: dict[str, Rules] = {
    type.lower(): rules
    for part in (
        network.RULES,
        interfaces.RULES,
        private.RULES,
        compute.RULES,
        scale_sets.RULES,
        access.RULES,
        services.RULES,
    )
    for type, rules in part.items()
}


def of(type: str) -> Rules:
    """Return the rules of a type."""
    return _BY_TYPE.get(type.lower(), _NONE)
