# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Members of etcd and control planes come, go, and are rebuilt."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.common import (
    ALLOW_DESTRUCTIVE,
    EVERYWHERE,
    FORCE_DRAIN,
    PLAN,
    named,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import Operation

_FOLLOWING = ("reload-load-balancer", "restart-events", "restart-api-server", "restart-backup")
_JOINING = ("etcd-add-learner", "etcd-promote", "join")
_LEAVING = ("etcd-remove", "drain", "reset", "delete-node")

OPERATIONS = (
    Operation(
        name="member_add",
        summary="hosts become members of etcd and control planes",
        details="Each joins etcd as a learner and is promoted when it is in sync; API servers and load "
        "balancers follow.",
        command=("member", "add"),
        hosts="the new members, and those that follow",
        arguments=(
            named("the hosts that become members", required=True),
            ALLOW_DESTRUCTIVE,
            PLAN,
            *EVERYWHERE,
        ),
        limit=False,
        steps=(*_JOINING, *_FOLLOWING),
        compared="targets",
        approval=True,
        minutes=30,
    ),
    Operation(
        name="member_remove",
        summary="members of etcd and control planes leave",
        details="They stay in the inventory until this is over. A host that is dead is only forgotten.",
        command=("member", "remove"),
        hosts="the members that leave, and those that follow",
        arguments=(
            named("the members that leave", required=True),
            FORCE_DRAIN,
            ALLOW_DESTRUCTIVE,
            PLAN,
            *EVERYWHERE,
        ),
        consent="steps",
        limit=False,
        steps=(*_FOLLOWING, *_LEAVING),
        compared="others",
        minutes=20,
    ),
    Operation(
        name="member_replace",
        summary="one member of etcd or control plane is rebuilt",
        details="For an empty disk, wrong data, or another machine at the host's address or at a new one; "
        "the one that "
        "started the cluster included.",
        command=("member", "replace"),
        hosts="the member, and those that follow",
        arguments=(
            named("the one host that is rebuilt", required=True),
            FORCE_DRAIN,
            ALLOW_DESTRUCTIVE,
            PLAN,
            *EVERYWHERE,
        ),
        consent="steps",
        limit=False,
        steps=(*_LEAVING, *_JOINING, *_FOLLOWING),
        compared="targets",
        grouped=True,
        minutes=40,
    ),
)
