# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is changed without a gap, a stage or a node at a time: authorities, encryption, the pod network."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.common import (
    ALLOW_DESTRUCTIVE,
    EVERYWHERE,
    FORCE_DRAIN,
    PLAN,
    changed,
    named,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import Argument, Operation

OPERATIONS = (
    Operation(
        name="ca_rotate",
        summary="another certificate authority, or another key of service accounts, one stage a run",
        details='The stage "next" lets all hosts follow the present stage, or enters the one after it once '
        "they have.",
        command=("certs", "rotate"),
        hosts="all",
        arguments=(
            Argument(
                name="ironspan_authority",
                what="the authority that is changed for another",
                choices=("etcd", "kubernetes", "front-proxy", "service-account"),
                required=True,
                option="AUTHORITY",
            ),
            Argument(
                name="ironspan_authority_stage",
                what="the stage to enter, or next",
                choices=("next", "trust", "issue", "drop", "back"),
                default="next",
                formerly="ironspan_stage",
                option="STAGE",
            ),
            Argument(
                name="ironspan_leave_behind",
                what="workers that are gone for good or for long, and need not follow",
                type="hosts",
            ),
            Argument(
                name="ironspan_token_minutes",
                what="how long pods may use a token that they were given",
                type="int",
                default=70,
                least=1,
                most=525_600,
            ),
            ALLOW_DESTRUCTIVE,
            PLAN,
            *EVERYWHERE,
        ),
        limit=False,
        steps=("authority-next", "authority-trust", "authority-issue", "authority-drop", "authority-back"),
        compared="none",
        approval=True,
        minutes=60,
    ),
    Operation(
        name="encryption_rotate",
        summary="another key, or another way, to encrypt secrets in etcd, one stage a run",
        details='The stage "next" lets all API servers follow the present stage, or enters the one after '
        "it once they have.",
        command=("encryption", "rotate"),
        hosts="all",
        arguments=(
            Argument(
                name="ironspan_encryption_stage",
                what="the stage to enter, next, or rewrite, which writes all secrets again",
                choices=("next", "read", "write", "drop", "back", "recall", "rewrite"),
                default="next",
                formerly="ironspan_stage",
                option="STAGE",
            ),
            ALLOW_DESTRUCTIVE,
            PLAN,
            *EVERYWHERE,
        ),
        limit=False,
        steps=(
            "encryption-read",
            "encryption-write",
            "encryption-drop",
            "encryption-back",
            "encryption-recall",
            "encryption-rewrite",
        ),
        compared="none",
        approval=True,
        minutes=60,
    ),
    Operation(
        name="cni_migrate",
        summary="move a running cluster from flannel to Cilium, node after node, or back",
        details="The inventory has site_cni_migration_cidr, and the operation site has run.",
        command=("cni", "migrate"),
        hosts="those named, or all nodes",
        arguments=(
            changed(named("the hosts or groups that are moved (all nodes)"), all_when_empty=True),
            Argument(
                name="ironspan_pod_network",
                what="where nodes go; cilium-only is the last stage, after which there is no way back",
                choices=("cilium", "flannel", "cilium-only"),
                default="cilium",
                option="to",
            ),
            FORCE_DRAIN,
            ALLOW_DESTRUCTIVE,
            PLAN,
            *EVERYWHERE,
        ),
        consent="steps",
        limit=False,
        steps=(
            "drain",
            "delete-pods",
            "to-cilium",
            "to-flannel",
            "uncordon",
            "enforce-policies",
            "remove-flannel",
            "remove-kube-proxy",
            "record-cilium",
        ),
        compared="none",
        groups=True,
        minutes=240,
    ),
    Operation(
        name="certs_renew",
        summary="renew certificates that are about to end",
        details="Control planes are taken one after the other. site_certificate_renew_days says which.",
        command=("certs", "renew"),
        hosts="all",
        arguments=(ALLOW_DESTRUCTIVE, PLAN, *EVERYWHERE),
        limit=False,
        steps=("renew-certificates",),
        minutes=30,
    ),
)
