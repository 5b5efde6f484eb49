# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Writes the routes of a virtual network to the pods of nodes in Azure as a template. Changes nothing."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import ClusterAction, Result
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.routes import (
    ROUTES_OF_A_MANAGED_TABLE,
    ROUTES_OF_A_TABLE,
    Node,
    RouteError,
    routes_of,
    template,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.tags import SITE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.azure_routes``."""

    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {
        "table": {"type": "str", "default": ""},
        "location": {"type": "str", "required": True},
        "managed": {"type": "bool", "default": False},
        "report": {"type": "path", "default": ""},
    }

    def visit(self, session: Session, arguments: Result) -> Result:
        """Ask the cluster which node has which part of the pod network, and put the template together."""
        site = session.site
        table = arguments["table"] or f"{site.name}-pods"
        most = ROUTES_OF_A_MANAGED_TABLE if arguments["managed"] else ROUTES_OF_A_TABLE
        try:
            routes = routes_of(_nodes(session), most)
            tags = {SITE: site.name}
            report = template(table, arguments["location"], routes, tags)
        except RouteError as error:
            return {"failed": True, "refused": True, "msg": str(error)}
        lines = [f"{table}: {len(routes)} of {most} routes"]
        lines += [f"  {route.prefix} -> {route.next_hop} ({route.name})" for route in routes]
        return self.reported(report, "\n".join(lines), arguments["report"])


def _nodes(session: Session) -> list[Node]:
    """Return the nodes of the cluster whose hosts the inventory has in Azure."""
    hosts = session.site.hosts
    return [
        Node(
            node["metadata"]["name"],
            [each["address"] for each in node["status"]["addresses"] if each["type"] == "InternalIP"],
            node["spec"].get("podCIDRs") or (),
        )
        for node in session.api().get("/api/v1/nodes")["items"]
        if (host := hosts.get(node["metadata"]["name"])) and host.site_group == "azure"
    ]
