# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Backups of etcd: made, shown, proven, deleted, restored."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.common import (
    ALLOW_DESTRUCTIVE,
    EVERYWHERE,
    PLAN,
    changed,
    named,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import Argument, Operation


def _at(what: str) -> Argument:
    """Return the argument that names hosts; as an option, because a command names something else first."""
    return changed(named(what), option="host")


_PROGRAM = Argument(
    name="ironspan_arguments",
    what="arguments of the backup program on the host, such as the name of a snapshot, or --store=2",
    type="list",
    default=(),
    option="argument",
)

OPERATIONS = (
    Operation(
        name="etcd_restore",
        summary="rebuild etcd from its backup, or from a member's data where these are newer",
        details="Everything that would go wrong is said before anything is stopped. Interrupted, it goes "
        "on where it was.",
        command=("backup", "restore"),
        hosts="members of etcd and control planes",
        arguments=(
            _at("the one host on which it is made (the one whose data reach furthest)"),
            Argument(
                name="ironspan_point",
                what="latest, a time or a revision; behind unsigned: for what was written before backups "
                "were signed",
                pattern=r"(unsigned:)?(latest|revision:[1-9][0-9]*"
                r"|time:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d))",
                example="latest, time:2026-11-22T02:00:00Z or revision:123456",
                default="latest",
                option="POINT",
            ),
            Argument(
                name="ironspan_source",
                what="from the backup, from the data of a member that survived, or the newer of both",
                choices=("auto", "backup", "survivor"),
                default="auto",
            ),
            Argument(
                name="ironspan_force_restore",
                what="although etcd has its quorum, or the data are of another cluster than the backup",
                type="bool",
                default=False,
                formerly="ironspan_force",
                option="force",
            ),
            ALLOW_DESTRUCTIVE,
            PLAN,
            *EVERYWHERE,
        ),
        consent="steps",
        limit=False,
        steps=(
            "etcd-rebuild",
            "stop-control-plane",
            "etcd-set-aside",
            "etcd-begin",
            "etcd-restore",
            "start-control-plane",
            "etcd-join",
        ),
        said=("etcd-join-later", "etcd-leave-out"),
        compared="none",
        grouped=True,
        minutes=45,
    ),
    Operation(
        name="backup_list",
        summary="the snapshots, what is proven of them, and how far the log leads",
        command=("backup", "list"),
        hosts="members of etcd",
        arguments=(_at("these instead of all members"), *EVERYWHERE),
        changes=False,
    ),
    Operation(
        name="backup_verify",
        summary="read every byte of the backups",
        command=("backup", "verify"),
        hosts="one member of etcd",
        arguments=(_at("where (the last member)"), _PROGRAM, *EVERYWHERE),
        changes=False,
        minutes=60,
    ),
    Operation(
        name="backup_drill",
        summary="prove a backup by restoring it into a scratch etcd",
        command=("backup", "drill"),
        hosts="one member of etcd",
        arguments=(_at("where (the last member)"), _PROGRAM, *EVERYWHERE),
        check_mode=False,
        minutes=30,
    ),
    Operation(
        name="backup_gc",
        summary="delete the backups that retention lets go",
        command=("backup", "gc"),
        hosts="one host with the identity that may delete",
        arguments=(_at("where (the last member)"), _PROGRAM, *EVERYWHERE),
        check_mode=False,
    ),
    Operation(
        name="backup_accept",
        summary="go on with a database that is older than its backup",
        details="What the backup has beyond it stays in the backup only. Nothing happens where the "
        "database is the one that "
        "was backed up.",
        command=("backup", "accept"),
        hosts="members of etcd",
        arguments=(_at("these instead of all members"), ALLOW_DESTRUCTIVE, *EVERYWHERE),
        consent="always",
        minutes=5,
    ),
    Operation(
        name="backup_store",
        summary="make and check the containers that hold backups",
        command=("backup", "store"),
        arguments=(
            Argument(
                name="ironspan_lock",
                what="consent: the container whose retention policy is locked for ever, as ACCOUNT/CONTAINER",
                pattern="[a-z0-9]+/[a-z0-9-]+",
                example="acmebackupweu/etcd",
            ),
            ALLOW_DESTRUCTIVE,
            PLAN,
            *EVERYWHERE,
        ),
        compared="none",
        remote=("backup_container",),
        cluster=False,
        approval=True,
        minutes=5,
    ),
)
