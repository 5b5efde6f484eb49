# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Writes the routes of a virtual network to pods of nodes in Azure, as data or template. Changes nothing."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import ClusterAction, Result
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.routes import (
    ROUTES_OF_A_MANAGED_TABLE,
    ROUTES_OF_A_TABLE,
    Node,
    RouteError,
    data_of,
    routes_of,
    template,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.tags import SITE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.estate_checks import has_estate

POD_ROUTES = "azure_pod_routes"
"""The variable of the estate."""


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.azure_routes``."""

    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {
        "table": {"type": "str", "default": ""},
        "location": {"type": "str", "default": ""},
        "managed": {"type": "bool", "default": False},
        "report": {"type": "path", "default": ""},
    }

    def visit(self, session: Session, arguments: Result) -> Result:
        """Ask the cluster which node has which part of the pod network, and put the result together."""
        site = session.site
        most = ROUTES_OF_A_MANAGED_TABLE if arguments["managed"] else ROUTES_OF_A_TABLE
        try:
            if has_estate(site):
                _insist_on_nothing_else(arguments)
            routes = routes_of(_nodes(session), most)
            table = arguments["table"] or f"{site.name}-pods"
            if has_estate(site):
                table, report = POD_ROUTES, {POD_ROUTES: [data_of(route) for route in routes]}
            else:
                report = template(table, arguments["location"], routes, {SITE: site.name})
        except RouteError as error:
            return {"failed": True, "refused": True, "msg": str(error)}
        lines = [f"{table}: {len(routes)} of {most} routes"]
        lines += [f"  {route.prefix} -> {route.next_hop} ({route.name})" for route in routes]
        return self.reported(report, "\n".join(lines), arguments["report"])


def _insist_on_nothing_else(arguments: Result) -> None:
    """Refuse what the estate decides: its table, where it is, and who keeps it."""
    if said := [name for name in ("table", "location", "managed") if arguments[name]]:
        raise RouteError(
            f"{' and '.join(said)}: the estate of this site has a route table of its own.",
            "Leave it out; docs/azure-network.md says what to do with the routes.",
        )


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
