# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A controller of jobs (AWX and its likes): its configuration, and what workflows run between operations."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.common import (
    ALLOW_DESTRUCTIVE,
    EVERYWHERE,
    PLAN,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import Argument, Operation

OPERATIONS = (
    Operation(
        name="awx_configure",
        summary="make the objects of a controller (AWX, Ascender, AAP) match what the site declares",
        details="What begins with the site's prefix and is not declared any more is removed, with consent; "
        "what does not begin so is left alone and named. The token comes from IRONSPAN_AWX_TOKEN.",
        command=("awx", "configure"),
        arguments=(
            Argument(
                name="ironspan_write_secrets",
                what="write secrets again; controllers do not tell whether theirs are the same",
                type="bool",
                default=False,
            ),
            ALLOW_DESTRUCTIVE,
            PLAN,
            *EVERYWHERE,
        ),
        compared="none",
        remote=("controller_object",),
        cluster=False,
        minutes=5,
    ),
    Operation(
        name="awx_guard",
        summary="refuse a workflow whose approval came from whoever launched it",
        details="It runs in a controller, behind an approval.",
        arguments=EVERYWHERE,
        changes=False,
        minutes=1,
    ),
    Operation(
        name="awx_left",
        summary="say what a workflow that stopped has left: nodes that are cordoned, and by whom",
        details="It always fails, so that the workflow does.",
        arguments=EVERYWHERE,
        changes=False,
        minutes=5,
    ),
)
