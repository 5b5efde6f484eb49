# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is about the whole site: making it match the inventory, plans, upgrades, ways back."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.common import (
    ALLOW_DESTRUCTIVE,
    EVERYWHERE,
    PLAN,
    TRY,
    changed,
    named,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import Argument, Operation

OPERATIONS = (
    Operation(
        name="site",
        summary="make all hosts and the cluster match the inventory",
        details="With a plan it applies that plan and nothing else. A second run that finds nothing to do "
        "makes one call a "
        "host.",
        command=("apply",),
        hosts="all",
        arguments=(ALLOW_DESTRUCTIVE, PLAN, *EVERYWHERE),
        slices=True,
        approval=True,
        minutes=60,
    ),
    Operation(
        name="try",
        summary="apply what differs on the hosts on trial",
        details="They go back by themselves unless the operation confirm comes in time. Objects of the "
        "cluster are not "
        "touched.",
        command=("try",),
        hosts="all",
        arguments=(changed(TRY, required=True, option="TIME"), ALLOW_DESTRUCTIVE, PLAN, *EVERYWHERE),
        approval=True,
        minutes=30,
    ),
    Operation(
        name="confirm",
        summary="keep what is on trial, or take it back",
        command=("confirm",),
        hosts="all, or those of a limit",
        arguments=(
            Argument(
                name="ironspan_revert",
                what="take it back now instead of keeping it",
                type="bool",
                default=False,
            ),
            *EVERYWHERE,
        ),
        check_mode=False,
    ),
    Operation(
        name="rollback",
        summary="hosts go back to a document that was applied to them before",
        details="Of several hosts those go back whose last change is the site's last one.",
        command=("rollback",),
        hosts="those named",
        arguments=(
            named("the hosts or groups that go back", required=True),
            Argument(
                name="ironspan_digest",
                what="the document to go back to, by the beginning of its digest (the one before the "
                "present one)",
                pattern="[0-9a-fA-F]{4,64}",
                example="9aa3b4d0408e",
                formerly="ironspan_to",
                option="to",
            ),
            TRY,
            ALLOW_DESTRUCTIVE,
            PLAN,
            *EVERYWHERE,
        ),
        limit=False,
        steps=("rollback",),
        compared="targets",
        groups=True,
        approval=True,
        minutes=20,
    ),
    Operation(
        name="history",
        summary="what was applied to the hosts, and what is on trial there",
        hosts="all, or those of a limit",
        arguments=EVERYWHERE,
        changes=False,
    ),
    Operation(
        name="plan",
        summary="write down what a playbook would do",
        details="It takes what the planned operation takes, too. The file can be read, signed, and applied "
        "exactly so.",
        command=("plan",),
        hosts="all, or those that the planned operation compares",
        arguments=(
            Argument(
                name="ironspan_planned", what="the operation to plan (site)", of_run=True, option="OPERATION"
            ),
            Argument(
                name="ironspan_plan_file",
                what="file to write, or a folder to put it into",
                type="file",
                default=".",
                of_run=True,
                option="output",
                short="o",
            ),
            *EVERYWHERE,
        ),
        changes=False,
    ),
    Operation(
        name="upgrade",
        summary="bring etcd, control planes and nodes to the versions of the inventory",
        details="A snapshot, the members of etcd one by one, the control planes one by one, the nodes in "
        "waves. Between "
        "the steps a gate; one that stays closed stops everything. Run again, it goes on.",
        command=("upgrade",),
        hosts="all that differ",
        arguments=(
            named("nodes that also go through a wave when their versions look right"),
            Argument(
                name="ironspan_snapshot_directory",
                what="folder on the first member of etcd for the snapshot",
                pattern=r"(/(?!\.\.?(/|$))[A-Za-z0-9._@:+,=~-]+)+/?",
                example="/var/lib/etcd/snapshots",
                default="/var/lib/etcd/snapshots",
            ),
            Argument(
                name="ironspan_snapshots_kept",
                what="how many snapshots stay there",
                type="int",
                default=3,
                least=1,
                most=10_000,
            ),
            Argument(
                name="ironspan_keep_driver",
                what="keep a driver with which GPUs failed their preflight, and the node cordoned, to be "
                "looked into; otherwise it goes back to the one of before",
                type="bool",
                default=False,
            ),
            ALLOW_DESTRUCTIVE,
            PLAN,
            *EVERYWHERE,
        ),
        limit=False,
        steps=(
            "etcd-snapshot",
            "upgrade-etcd",
            "upgrade-control-plane",
            "drain",
            "upgrade-node",
            "uncordon",
            "upgrade-kube-proxy",
            "upgrade-coredns",
        ),
        compared="targets",
        any_order=True,
        approval=True,
        minutes=360,
    ),
    Operation(
        name="reset",
        summary="back to bare hosts: the cluster and all its data are deleted",
        command=("reset",),
        hosts="all, or those of a limit",
        arguments=(
            Argument(
                name="ironspan_reset_site",
                what="consent: the name of the site whose cluster is deleted",
                of_run=True,
                formerly="reset_consent",
                option="SITE",
            ),
            *EVERYWHERE,
        ),
        consent="always",
        minutes=30,
    ),
    Operation(
        name="validate",
        summary="check the whole inventory, without contacting a host",
        command=("validate",),
        arguments=EVERYWHERE,
        changes=False,
    ),
    Operation(
        name="verify",
        summary="prove that the cluster works",
        command=("verify",),
        arguments=EVERYWHERE,
        changes=False,
    ),
)
