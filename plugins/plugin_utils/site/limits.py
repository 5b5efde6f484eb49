# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Ranges of numbers: what a role declares of a variable, or what its unit implies."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.variable_file import Limit

SUFFIXES: dict[str, Limit] = {
    "_port": Limit(1, 65_535, "a TCP or UDP port"),
    "_percent": Limit(0, 100, "per cent"),
    "_mtu": Limit(576, 9216, "MTU in bytes"),
    "_ms": Limit(0, 24 * 3_600_000, "milliseconds"),
    "_seconds": Limit(0, 10 * 365 * 86_400, "seconds"),
    "_hours": Limit(0, 10 * 365 * 24, "hours"),
    "_days": Limit(0, 20 * 365, "days"),
    "_bytes": Limit(0, 2**60, "bytes"),
    "_mb": Limit(0, 2**40, "megabytes"),
    "_count": Limit(0, 1_000_000, "a number of things"),
}


def limit_of(name: str) -> Limit | None:
    """Return the range of a numeric variable: its own, or the one its unit (the end of its name) implies."""
    own = all_layers().limits.get(name)
    if own is not None:
        return own
    for suffix, limit in SUFFIXES.items():
        if name.endswith(suffix):
            return limit
    return None
