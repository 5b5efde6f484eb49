# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Parts of the operation site that can be run by themselves."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.common import (
    ALLOW_DESTRUCTIVE,
    EVERYWHERE,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import Operation


def _phase(
    name: str, summary: str, hosts: str = "", *, changes: bool = True, deletes: bool = False
) -> Operation:
    arguments = (ALLOW_DESTRUCTIVE, *EVERYWHERE) if deletes else EVERYWHERE
    return Operation(name=name, summary=summary, hosts=hosts, arguments=arguments, changes=changes)


OPERATIONS = (
    _phase("assess", "is each host fit, and how does it differ from its document", "all", changes=False),
    _phase("prepare", "everything that a host needs before it becomes a member of anything", "all"),
    _phase("follow", "hosts that run already follow their documents", "all"),
    _phase("etcd", "members of etcd start, join, and change one after the other", "members of etcd"),
    _phase("etcd_events", "the etcd for events", "members of etcd"),
    _phase(
        "etcd_backup",
        "the backup agent of the members, its settings and keys",
        "members of etcd, drill hosts",
    ),
    _phase("admission_try", "try admission policies on the pods that are there", changes=False),
    _phase("control_plane", "control planes start the cluster, join it, and change", "control planes"),
    _phase(
        "access", "the programs that grant access for a limited time and read the audit log", "control planes"
    ),
    _phase("gpu_repair", "the program that repairs GPU nodes and lets them in", "control planes"),
    _phase("network", "the pod network's objects", deletes=True),
    _phase("nodes", "workers join, with certificates, labels and taints", "workers"),
    _phase("names", "what CoreDNS is to be", deletes=True),
    _phase("isolation", "runtime classes, admission policies, roles of people", deletes=True),
)
