# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Configuring a controller of jobs: remote things only, no host and no cluster."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import Context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import Step


def steps(context: Context) -> list[Step]:
    """Return none: what is done to an object of the controller stands with it in the plan."""
    return []
