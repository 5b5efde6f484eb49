# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Removing workers: each is emptied, reset and forgotten; one that is dead is only forgotten."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import Context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.workers import (
    RESET_SECONDS,
    delete_step,
    emptying_steps,
    named_workers,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import Step


def steps(context: Context) -> list[Step]:
    """Return the steps of the named hosts, in the order of the waves.

    The host is reset before its Node is deleted: a kubelet that runs on would be a member that nobody sees.

    Raises:
        OperationError: no worker is named, or its pods must not be lost.
    """
    hosts = named_workers(context, "node_remove")
    nodes = context.nodes()
    found: list[Step] = []
    for name, emptying in emptying_steps(context, hosts, nodes).items():
        host = context.site.hosts[name]
        reset = Step(
            "reset",
            name,
            f"take off {name} what ironspan put on it, if it answers",
            seconds=RESET_SECONDS,
            destructive=True,
        )
        found += [*emptying, reset, *([delete_step(host)] if name in nodes else [])]
    return found
