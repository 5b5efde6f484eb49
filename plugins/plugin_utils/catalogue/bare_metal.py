# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Servers from their BMC to an operating system, through Ironic."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.common import (
    ALLOW_DESTRUCTIVE,
    EVERYWHERE,
    EXPECTED,
    PLAN,
    REPORT,
    SERVERS,
    changed,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import Argument, Operation

_MAPPING = Argument(
    name="ironspan_mapping",
    what="file that says what the columns of a vendor's list mean",
    type="file",
)
_NO_CLUSTER = Argument(
    name="ironspan_no_cluster",
    what="there is no cluster yet that could have nodes on these servers",
    type="bool",
    default=False,
)
_OF_SERVERS = (
    changed(SERVERS, what="servers, as the file calls them", required=True),
    EXPECTED,
    _MAPPING,
    _NO_CLUSTER,
    ALLOW_DESTRUCTIVE,
    REPORT,
    PLAN,
    *EVERYWHERE,
)

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
            _MAPPING,
            ALLOW_DESTRUCTIVE,
            REPORT,
            PLAN,
            *EVERYWHERE,
        ),
        compared="none",
        remote=("bare_metal_server",),
        cluster=False,
    ),
    Operation(
        name="server_redeploy",
        summary="servers get their operating system again: the same, another image, or at another place",
        details="What is on their disks is gone. They are inspected and compared again before. A server on "
        "which a node of the cluster runs is refused: remove the node first.",
        command=("server", "redeploy"),
        arguments=_OF_SERVERS,
        compared="none",
        remote=("bare_metal_redeploy",),
        cluster=False,
    ),
    Operation(
        name="server_retire",
        summary="servers leave for good: taken down, marked as retired, every disk erased",
        details="What Ironic reported of the erasure is kept as JSON in the folder erased, beside the file "
        "of expected servers. A server on which a node of the cluster runs is refused: remove it first.",
        command=("server", "retire"),
        arguments=_OF_SERVERS,
        compared="none",
        remote=("bare_metal_retire",),
        cluster=False,
    ),
    Operation(
        name="server_drift",
        summary="how servers differ from what is declared of them: parts, settings in Ironic, place, system",
        details="Parts are those that were measured last. It fails when anything differs.",
        command=("server", "drift"),
        arguments=(SERVERS, EXPECTED, _MAPPING, REPORT, *EVERYWHERE),
        changes=False,
    ),
)
