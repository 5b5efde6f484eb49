# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Workers come, go, and get other machines."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.common import (
    ALLOW_DESTRUCTIVE,
    EMPTIED,
    EVERYWHERE,
    FORCE_DRAIN,
    LEAVING,
    PLAN,
    named,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import Operation

OPERATIONS = (
    Operation(
        name="node_add",
        summary="workers join the cluster",
        details="Without names: all workers of the inventory that are no nodes yet.",
        command=("node", "add"),
        hosts="the new workers",
        arguments=(
            named("the workers that join (all that are no nodes yet)"),
            ALLOW_DESTRUCTIVE,
            PLAN,
            *EVERYWHERE,
        ),
        limit=False,
        steps=("join",),
        compared="targets",
        only_named=True,
        new_hosts=True,
        minutes=30,
    ),
    Operation(
        name="node_remove",
        summary="workers leave the cluster: drained, reset, forgotten",
        details="They are drained in waves, within their disruption budgets. A host that is dead is only "
        "forgotten.",
        command=("node", "remove"),
        hosts="the workers that leave",
        arguments=(
            named("the workers that leave", required=True),
            FORCE_DRAIN,
            ALLOW_DESTRUCTIVE,
            PLAN,
            *EVERYWHERE,
        ),
        consent="steps",
        limit=False,
        steps=LEAVING,
        compared="none",
        only_named=True,
        minutes=60,
    ),
    Operation(
        name="node_replace",
        summary="workers get other machines under their names",
        details="The old machines are drained and forgotten, the new ones join. The inventory has the new "
        "addresses.",
        command=("node", "replace"),
        hosts="the new machines",
        arguments=(
            named("the workers that get other machines", required=True),
            FORCE_DRAIN,
            ALLOW_DESTRUCTIVE,
            PLAN,
            *EVERYWHERE,
        ),
        consent="steps",
        limit=False,
        steps=(*EMPTIED, "delete-node", "join"),
        compared="targets",
        only_named=True,
        new_hosts=True,
        minutes=90,
    ),
)
