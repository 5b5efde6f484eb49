# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is asked of nodes with GPUs."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.common import EVERYWHERE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import Argument, Operation

OPERATIONS = (
    Operation(
        name="gpu_preflight",
        summary="idle GPU nodes are asked for a preflight, those first whose last one is the longest ago",
        details="A preflight ends when something else wants a GPU. Verdicts are not waited for; `ironspan "
        "gpu status` shows them.",
        command=("gpu", "preflight"),
        arguments=(
            Argument(
                name="ironspan_at_once",
                what="nodes that are tested at the same time, those included that are at it already",
                type="int",
                default=4,
                least=1,
                most=100,
            ),
            Argument(
                name="ironspan_older_days",
                what="how many days old the last preflight of a node has to be",
                type="int",
                default=7,
                least=0,
                most=366,
            ),
            *EVERYWHERE,
        ),
        minutes=2,
    ),
    Operation(
        name="gpu_pairs",
        summary="idle GPU nodes of a rack test each other in pairs: TCP, and NCCL where both have it",
        details="Where a pair fails, a third node says which of the two it was, and the repair is told. "
        "A test ends when something else wants a GPU. The run fails when a pair failed.",
        command=("gpu", "pairs"),
        arguments=(
            Argument(
                name="ironspan_at_once",
                what="pairs that test each other at the same time",
                type="int",
                default=4,
                least=1,
                most=100,
            ),
            Argument(
                name="ironspan_older_days",
                what="how many days old the last such test of one of the two has to be",
                type="int",
                default=7,
                least=0,
                most=366,
            ),
            *EVERYWHERE,
        ),
        minutes=30,
    ),
)
