# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The last stage of moving a cluster to Cilium: policies in force, flannel and kube-proxy gone."""

from __future__ import annotations

import dataclasses
import ipaddress
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import (
    ClusterAction,
    Result,
    seconds,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cilium import alone
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.cni_migrate import (
    ONLY,
    last_stage,
    way_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.prepare import renderer_for
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import day_zero
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.cilium_alone``."""

    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {
        "to": {"type": "str", "choices": ["cilium", "flannel", ONLY], "default": "cilium"},
        "part": {"type": "str", "choices": ["cluster", "record"], "required": True},
        "timeout_s": {"type": "int", "default": 600},
    }

    def visit(self, session: Session, arguments: Result) -> Result:
        """Do what is left of it; nothing where the run is about single nodes."""
        limit = seconds(arguments["timeout_s"], "timeout_s")
        if arguments["to"] != ONLY:
            return {"changed": False, "done": []}
        site = session.site
        network = ipaddress.IPv4Network(way_of(site, "cilium").network)
        api = session.api()
        recording = arguments["part"] == "record"
        parts = [part for part in last_stage(api, site) if (part == alone.RECORD) == recording]
        if self._task.check_mode or not parts:
            return {"changed": bool(parts), "done": []}
        nodes = {str(node["metadata"]["name"]): node for node in api.get("/api/v1/nodes")["items"]}
        if problems := alone.obstacles(api, nodes, network):
            raise ClusterError(
                f"Flannel stays, because it may still be needed: {'; '.join(problems)}.",
                "Run cni_migrate.yml without ironspan_pod_network first.",
            )
        try:
            if recording:
                day_zero.moved(site)
                self.say(
                    f"write site_cni: cilium and site_pod_cidr: {site.migration_cidr} into the inventory, "
                    f"take {day_zero.MIGRATION} out, leave cilium_tunnel_port as it is, and run site.yml"
                )
            else:
                day_zero.begin_last_stage(site.pki_store)
        except OSError as error:
            raise ClusterError(
                f"Cannot write {day_zero.file_of(site.pki_store)}: {error.strerror}.",
                "It keeps what the cluster's networks are; let it be written, and run this again.",
            ) from error
        if alone.ENFORCE in parts:
            alone.enforce(api, objects_alone(site), limit, self.say)
        if alone.FLANNEL in parts:
            alone.remove_flannel(api, limit, self.say)
        if alone.PROXY in parts:
            alone.remove_proxy(api, limit, self.say)
        return {"changed": True, "done": parts}


def objects_alone(site: Site) -> list[dict[str, t.Any]]:
    """Return Cilium's objects as a site has them that has only Cilium: what site.yml will apply, too."""
    after = dataclasses.replace(site, cni="cilium", pod_cidr=site.migration_cidr, migration_cidr="")
    return list(renderer_for(after)[0].objects("cilium"))
