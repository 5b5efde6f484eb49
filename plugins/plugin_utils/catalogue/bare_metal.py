# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Servers from their BMC to an operating system, through Ironic."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.common import (
    ALLOW_DESTRUCTIVE,
    EVERYWHERE,
    EXPECTED,
    PLAN,
    SERVERS,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import Argument, Operation

OPERATIONS = (
    Operation(
        name="bare_metal",
        summary="servers are made known to Ironic, inspected, compared with what was declared, and deployed",
        details="A server that differs from what was declared is held and named with slot and part. What "
        "wipes a disk needs --allow-destructive. The next run goes on from whatever state a killed one left.",
        command=("bare-metal",),
        arguments=(
            SERVERS,
            EXPECTED,
            Argument(
                name="ironspan_mapping",
                what="file that says what the columns of a vendor's list mean",
                type="file",
            ),
            ALLOW_DESTRUCTIVE,
            PLAN,
            *EVERYWHERE,
        ),
        compared="none",
        remote=("bare_metal_server",),
        cluster=False,
    ),
)
