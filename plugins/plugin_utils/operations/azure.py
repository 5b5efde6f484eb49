# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The estate in Azure: one remote thing, no host and no cluster."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import Context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import Step


def steps(context: Context) -> list[Step]:
    """Return none: what is done to the estate stands with it in the plan."""
    return []
