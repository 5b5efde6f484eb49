# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Whether the table that holds pods back is loaded, and what its counters say. Reads only."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._health import local

COMMAND = ("nft", "-j", "list", "counters", "table", "inet", "ironspan-egress")


def parse_counters(text: str) -> t.Dict[str, int]:
    """Return the packets of every counter that ``nft -j list counters`` printed; empty for anything else."""
    try:
        shown = json.loads(text)["nftables"]
        counters = [each["counter"] for each in shown if "counter" in each]
        return {str(counter["name"]): int(counter["packets"]) for counter in counters}
    except (ValueError, KeyError, TypeError):
        return {}


def collect() -> t.Dict[str, int]:
    """Return packets by counter, empty when the table is not loaded."""
    return parse_counters(local.output(COMMAND))
