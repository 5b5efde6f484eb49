# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Servers from their BMC to an operating system, through Ironic."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.common import (
    ALLOW_DESTRUCTIVE,
    EMPTIED,
    EVERYWHERE,
    EXPECTED,
    FORCE_DRAIN,
    LEAVING,
    PLAN,
    REPORT,
    SERVERS,
    changed,
    named,
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
    FORCE_DRAIN,
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
        minutes=120,
        approval=True,
    ),
    Operation(
        name="server_redeploy",
        summary="servers get their operating system again: the same, another image, or at another place",
        details="What is on their disks is gone. They are inspected and compared again before. A node of the "
        "cluster that runs on one leaves first: it is drained, reset and forgotten. node add makes it a node "
        "again.",
        command=("server", "redeploy"),
        hosts="servers that are nodes of the cluster",
        arguments=_OF_SERVERS,
        consent="steps",
        limit=False,
        steps=LEAVING,
        said=("node-add",),
        compared="none",
        remote=("bare_metal_redeploy",),
        cluster=False,
        minutes=90,
    ),
    Operation(
        name="server_retire",
        summary="servers leave for good: taken down, marked as retired, every disk erased",
        details="What Ironic reported of the erasure is kept as JSON in the folder erased, beside the file "
        "of expected servers. A node of the cluster that runs on one leaves first: it is drained, reset and "
        "forgotten.",
        command=("server", "retire"),
        hosts="servers that are nodes of the cluster",
        arguments=_OF_SERVERS,
        consent="steps",
        limit=False,
        steps=LEAVING,
        compared="none",
        remote=("bare_metal_retire",),
        cluster=False,
        minutes=240,
    ),
    Operation(
        name="server_firmware",
        summary="servers that run get the firmware that is declared of them, through Ironic's servicing",
        details="Nodes go wave after wave: drained, updated, restarted where the firmware needs it, and "
        "opened once they are Ready from that boot. A server that refuses, or still runs another version "
        "afterwards, is named with its slot and stays closed. BMCs get files from the site's own Ironic, by "
        "digest.",
        command=("server", "firmware"),
        hosts="servers that are nodes of the cluster",
        arguments=(
            SERVERS,
            EXPECTED,
            _MAPPING,
            _NO_CLUSTER,
            FORCE_DRAIN,
            ALLOW_DESTRUCTIVE,
            PLAN,
            *EVERYWHERE,
        ),
        consent="steps",
        limit=False,
        steps=(*EMPTIED, "update-firmware", "uncordon"),
        compared="none",
        remote=("bare_metal_firmware",),
        cluster=False,
        grouped=True,
        any_order=True,
        minutes=240,
        approval=True,
    ),
    Operation(
        name="ironic_password",
        summary="another password for the site's own Ironic",
        details="It is made in the PKI store, brought to its host, and proven; the former one opens nothing "
        "any more. The next run resumes one that was killed.",
        command=("ironic", "password"),
        hosts="the host of the group ironic",
        arguments=(ALLOW_DESTRUCTIVE, PLAN, *EVERYWHERE),
        limit=False,
        steps=("change-password",),
        compared="none",
        cluster=False,
        minutes=5,
        approval=True,
    ),
    Operation(
        name="server_drift",
        summary="how servers differ from what is declared of them: parts, settings in Ironic, place, system",
        details="Parts are those that were measured last. It fails when anything differs.",
        command=("server", "drift"),
        arguments=(SERVERS, EXPECTED, _MAPPING, REPORT, *EVERYWHERE),
        changes=False,
    ),
    Operation(
        name="server_attest",
        summary="what the TPMs of workers say, beside what was accepted of them",
        details="Each TPM proves that it has both of its keys, and signs what was measured at this boot. It "
        "fails when that was not accepted; the doctor shows what was found last. With --accept it is: "
        "certificates of a node with node_attestation: require are signed for this TPM and these "
        "measurements from then on.",
        command=("server", "attest"),
        hosts="those that are named, or all workers with a policy",
        arguments=(
            changed(named("workers (all with a policy; --accept needs names)"), all_when_empty=True),
            Argument(
                name="ironspan_accept",
                what="accept what is there now, in the name of this person",
                pattern="[A-Za-z0-9][A-Za-z0-9._@-]{0,63}",
                example="anna",
            ),
            *EVERYWHERE,
        ),
        approval=True,
        minutes=5,
    ),
)
