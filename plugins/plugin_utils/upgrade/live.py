# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which versions run, asked of the API and of etcd: a handful of requests, however many nodes."""

from __future__ import annotations

import dataclasses
import http.client
import json
import re
import ssl
import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.etcd import PORT, Member
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import cordon
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.upgrade.skew import Version, parse

_SYSTEM = "/api/v1/namespaces/kube-system/pods"
_APPS = "/apis/apps/v1/namespaces/kube-system"
DEPRECATED_METRIC = "apiserver_requested_deprecated_apis"
_METRIC = re.compile(rf"^{DEPRECATED_METRIC}\{{(.*)\}} 1$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclasses.dataclass(frozen=True, slots=True)
class Live:
    """What runs, by host.

    Args:
        servers: control plane -> version of its API server.
        kubelets: node -> version of its kubelet.
        runtimes: node -> version of its containerd.
        nodes: node -> its object.
        proxy: version of kube-proxy's image, "" if there is none.
        coredns: version of CoreDNS's image, "" if there is none.
    """

    servers: Mapping[str, Version]
    kubelets: Mapping[str, Version]
    runtimes: Mapping[str, Version]
    nodes: Mapping[str, Object] = dataclasses.field(repr=False)
    proxy: str = ""
    coredns: str = ""

    def closed_here(self, name: str) -> bool:
        """Tell whether a node is cordoned, and was cordoned by a change of ironspan's."""
        node = self.nodes.get(name)
        return node is not None and cordon.is_cordoned(node) and cordon.cordoned_here(node)


def look(api: Api) -> Live:
    """Ask the API."""
    nodes = {str(node["metadata"]["name"]): node for node in api.get("/api/v1/nodes")["items"]}
    servers: dict[str, Version] = {}
    for pod in api.get(_SYSTEM, labelSelector="component=kube-apiserver")["items"]:
        version = _tag(pod["spec"]["containers"][0]["image"])
        if version:
            servers[str(pod["spec"].get("nodeName", ""))] = parse(version)
    kubelets, runtimes = {}, {}
    for name, node in nodes.items():
        about = node.get("status", {}).get("nodeInfo", {})
        kubelets[name] = parse(str(about.get("kubeletVersion", "")))
        runtime = str(about.get("containerRuntimeVersion", "")).partition("://")[2]
        if re.match(r"v?\d+\.\d+\.\d+", runtime):
            runtimes[name] = parse(runtime)
    proxy = api.find(f"{_APPS}/daemonsets/kube-proxy")
    coredns = api.find(f"{_APPS}/deployments/coredns")
    return Live(servers, kubelets, runtimes, nodes, _image_of(proxy), _image_of(coredns))


def etcd_versions(members: Sequence[Member]) -> dict[str, Version]:
    """Return the versions of the members that answered."""
    return {member.name: parse(member.version) for member in members if not member.error}


def etcd_cluster_version(
    addresses: Sequence[str], context: ssl.SSLContext, port: int = PORT
) -> Version | None:
    """Return the version that the members have agreed on, None when nobody says.

    It is that of the oldest member, or the one that a downgrade was enabled to.
    """
    for address in addresses:
        try:
            connection = http.client.HTTPSConnection(address, port, timeout=5, context=context)
            try:
                connection.request("GET", "/version")
                answer = json.loads(connection.getresponse().read())
            finally:
                connection.close()
            return parse(str(answer["etcdcluster"]))
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
            continue
    return None


def deprecated_requests(metrics: str) -> list[dict[str, str]]:
    """Read which deprecated versions of APIs somebody has asked for since the API server started.

    Args:
        metrics: what the API server answers to ``/metrics``.

    Returns:
        The labels of ``apiserver_requested_deprecated_apis``: group, version, resource, removed_release, ...
    """
    return [dict(_LABEL.findall(match.group(1))) for match in _METRIC.finditer(metrics)]


def _image_of(item: Object | None) -> str:
    if item is None:
        return ""
    return _tag(item["spec"]["template"]["spec"]["containers"][0]["image"])


def _tag(image: t.Any) -> str:
    match = re.search(r":v?(\d+\.\d+\.\d+)(?:@|$)", str(image))
    return match.group(1) if match else ""
