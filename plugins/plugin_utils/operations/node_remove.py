# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Removing workers: each is emptied, reset and forgotten; one that is dead is only forgotten."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import Context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.workers import (
    leaving_steps,
    named_workers,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import Step


def steps(context: Context) -> list[Step]:
    """Return the steps of the named hosts, in the order of the waves.

    Raises:
        OperationError: no worker is named, or its pods must not be lost.
    """
    return leaving_steps(context, named_workers(context, "node_remove"), context.nodes())
