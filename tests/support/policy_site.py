# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A small site with network policies: its hosts, the objects in its cluster, and an API that holds them."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.egress import Egress
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.egress_names import Proxied
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import layers_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Host, Site

from tests.support.egress_table import LATER, entry

NOW = 1_900_000_000.0
ADDRESSES = {"az-1": "198.51.100.11", "rack-1": "198.51.101.11", "out-1": "198.51.100.20"}
PARTS = {"az-1": "10.244.0.0/24", "rack-1": "10.244.1.0/24"}
NAMESPACES = ("team-a", "team-b", "kube-system")
WEB, DATABASE, SHUT, AGENT = ("team-a", "web"), ("team-b", "db"), ("team-b", "shut"), ("kube-system", "agent")
PODS = {WEB: "10.244.1.10", DATABASE: "10.244.0.20", SHUT: "10.244.1.21", AGENT: ADDRESSES["az-1"]}
NODES = {WEB: "rack-1", DATABASE: "az-1", SHUT: "rack-1", AGENT: "az-1"}


def site(**variables: t.Any) -> Site:
    """Return the site; variables are those of all its hosts."""
    groups = {"az-1": ("control_plane", "nodes"), "rack-1": ("nodes",), "out-1": ("egress_proxy",)}
    settings = {
        "control_plane_port": 6443,
        "egress_proxy_port": 3128,
        "egress_enabled": False,
        "egress_policy_image": "",
        "egress_resolvers": [],
        **variables,
    }
    hosts = {
        name: Host(
            name, address, address, ("all", *groups[name]), "", {}, (), "azure", "", "1.36.4",
            layers_of(groups[name]), settings,
        )
        for name, address in ADDRESSES.items()
    }  # fmt: skip
    allowed = dataclasses.replace(entry("203.0.113.0/24"), owner="storage team", reason="data sets")
    proxied = Proxied("*.mirrors.example.com", ("443",), LATER, "build team", "packages")
    return Site(
        "small", "api:6443", "198.51.100.11", "10.244.0.0/16", "10.96.0.0/16", 24, "cluster.local", "1.36.4",
        1400, "", "", "", hosts, egress=Egress((allowed,), proxied=(proxied,)),
    )  # fmt: skip


def policy(namespace: str, name: str, **spec: t.Any) -> Object:
    """Return a NetworkPolicy."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"podSelector": {}, **spec},
    }


def objects() -> list[Object]:
    """Return everything in the cluster, as it is applied; pods have no status yet."""
    made: list[Object] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"team": name[-1]}}}
        for name in NAMESPACES
    ]
    # No pod without one, and no controller makes them here.
    made += [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": name, "name": "default"}}
        for name in NAMESPACES
    ]
    made += [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "spec": {"podCIDR": part, "podCIDRs": [part]},
        }
        for name, part in PARTS.items()
    ]
    for key in PODS:
        namespace, name = key
        port = {"name": "sql", "containerPort": 5432, "protocol": "TCP"}
        spec: Object = {
            "nodeName": NODES[key],
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": [{"name": "main", "image": "example.test/none", "ports": [port]}],
            **({"hostNetwork": True} if key == AGENT else {}),
        }
        if key == AGENT:
            del spec["containers"][0]["ports"]
        meta = {"namespace": namespace, "name": name, "labels": {"app": name}}
        made.append({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    web = {
        "namespaceSelector": {"matchLabels": {"team": "a"}},
        "podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]},
    }
    made += [
        policy("team-b", "deny"),
        policy(
            "team-b",
            "database",
            podSelector={"matchLabels": {"app": "db"}},
            ingress=[{"from": [web], "ports": [{"port": "sql"}]}],
        ),
        policy(
            "team-a",
            "out",
            policyTypes=["Egress"],
            egress=[
                {"to": [{"namespaceSelector": {}}]},
                {
                    "to": [{"ipBlock": {"cidr": "203.0.113.0/24", "except": ["203.0.113.128/25"]}}],
                    "ports": [{"port": 400, "endPort": 500}],
                },
                {"to": [{"ipBlock": {"cidr": f"{ADDRESSES['out-1']}/32"}}], "ports": [{"port": 3128}]},
            ],
        ),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"namespace": "team-b", "name": "db"},
            "spec": {
                "clusterIP": "10.96.0.77",
                "type": "ClusterIP",
                "ports": [{"name": "sql", "port": 15432, "targetPort": 5432, "protocol": "TCP"}],
            },
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "namespace": "team-b",
                "name": "db-1",
                "labels": {"kubernetes.io/service-name": "db"},
            },
            "addressType": "IPv4",
            "ports": [{"name": "sql", "port": 5432, "protocol": "TCP"}],
            "endpoints": [backend(DATABASE), backend(SHUT), backend(DATABASE, ready=False)],
        },
    ]
    return made


def backend(key: tuple[str, str], **conditions: bool) -> Object:
    """Return an endpoint of a slice."""
    target = {"kind": "Pod", "namespace": key[0], "name": key[1]}
    return {"addresses": [PODS[key]], "conditions": {"ready": True, **conditions}, "targetRef": target}


def status(key: tuple[str, str]) -> Object:
    """Return the status of a pod that runs."""
    return {"phase": "Running", "podIP": PODS[key], "podIPs": [{"ip": PODS[key]}]}


class HeldApi:
    """Answers what ``Lookup`` asks from ``objects``, as an API server would.

    ``lists`` has what is under some paths; kinds that the cluster does not know are not there.
    """

    def __init__(self, lists: dict[str, list[Object]] | None = None) -> None:
        self.objects = objects()
        self.lists = lists or {}
        for each in self.objects:
            meta = each["metadata"]
            if each["kind"] == "Pod":
                each["status"] = status((meta["namespace"], meta["name"]))

    def get(self, path: str, **query: str) -> Object:
        """Return a list, or an object that is there."""
        found = self.find(path)
        if found is not None:
            return found
        *_, last = path.split("/")
        namespace = path.partition("/namespaces/")[2].partition("/")[0]
        kind = {
            "policies": "NetworkPolicy",
            "networkpolicies": "NetworkPolicy",
            "endpointslices": "EndpointSlice",
        }
        items = [
            each
            for each in self.objects
            if each["kind"] == kind.get(last, last[:-1].capitalize())
            and namespace in ("", each["metadata"].get("namespace"))
            and all(_holds(each, *text.split("=")) for text in query.values())
        ]
        return {"items": items}

    def find(self, path: str) -> Object | None:
        """Return an object by its path, or a list of ``lists``."""
        if path in self.lists:
            return {"items": self.lists[path]}
        *_, plural, name = path.split("/")
        namespace = path.partition("/namespaces/")[2].split("/")
        for each in self.objects:
            same = each["metadata"].get("namespace", "") == (namespace[0] if len(namespace) > 1 else "")
            if each["kind"].lower() + "s" == plural and each["metadata"]["name"] == name and same:
                return each
        return {"metadata": {"name": name}} if plural == "namespaces" else None


def _holds(item: Object, field: str, value: str) -> bool:
    if field.startswith("kubernetes.io/"):
        return bool(item["metadata"].get("labels", {}).get(field) == value)
    part: t.Any = item
    for key in field.split("."):
        part = part.get(key, {})
    return bool(part == value)
