# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Finds out whether the cluster exists, and lets one control plane start it where it does not."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import ClusterAction, Result
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.etcd_cluster import EtcdCluster
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.verdicts import (
    BARE_GROUP,
    COMPARED_GROUP,
    STARTING_GROUP,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import (
    ClusterError,
    UnreachableError,
)

KEYS = "/registry/"
"""Below it the API server keeps everything (its default --etcd-prefix)."""
PATIENCE_SECONDS = 3


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.cluster_start``."""

    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {"hosts": {"type": "list", "elements": "str", "required": True}}

    def visit(self, session: Session, arguments: Result) -> Result:
        """Choose the host that starts the cluster, none when it lives."""
        chosen = self._chosen(session, arguments["hosts"])
        for host in chosen:
            self.add_host(host, parent_group_names=[STARTING_GROUP])
        return {"changed": False, "hosts": chosen}

    def _chosen(self, session: Session, hosts: list[str]) -> list[str]:
        starting = [host for host in hosts if host in self.group(STARTING_GROUP)]
        bare = [host for host in hosts if host in self.group(BARE_GROUP, "control_plane")]
        if starting or not bare:
            return starting
        try:
            session.api(patience=PATIENCE_SECONDS).text("/readyz")
            return []
        except UnreachableError:
            pass
        except ClusterError:
            # It answers, if only to say that it is not well: there is a cluster to join.
            return []
        if not EtcdCluster(session).membership().has_key_below(KEYS):
            return bare[:1]
        compared = self.group(COMPARED_GROUP, "control_plane")
        others = [
            host.name
            for host in session.site.group("control_plane")
            if host.name not in compared or host.name not in self.group(BARE_GROUP, "control_plane")
        ]
        if others:
            raise ClusterError(
                f"The cluster {session.site.name} is in etcd, but its API {session.site.api_endpoint} "
                f"does not answer, and {', '.join(others)} may hold a control plane of it.",
                "Repair that one (or the load balancer) first: a host joins through the API. If it is lost, "
                "include it bare and reachable in this run, or take it out of the inventory.",
            )
        self.say("every control plane is gone; the first one starts with what etcd has")
        return bare[:1]
