# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A cluster that is a table, an inventory of five hosts, and what an operation looks at."""

from __future__ import annotations

import types
import typing as t
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.etcd import Member
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import DrainPolicy, Host, Site

OLD, NEW = "1.36.4", "1.37.1"
Content = dict[str, t.Any]


class Table:
    """An API that answers from a table and takes merges down."""

    def __init__(self, answers: Content) -> None:
        self.answers = answers
        self.merged: list[tuple[str, Content]] = []
        self.metrics = ""

    def get(self, path: str, **query: str) -> Content:
        if path not in self.answers:
            raise ApiError(404, "NotFound", path, "GET")
        if query.get("labelSelector"):
            return dict(self.answers[f"{path}?{query['labelSelector']}"])
        if query.get("fieldSelector"):
            name = query["fieldSelector"].removeprefix("spec.nodeName=")
            items = self.answers[path]["items"]
            return {"items": [item for item in items if item["spec"].get("nodeName") == name]}
        return dict(self.answers[path])

    def find(self, path: str) -> Content | None:
        return self.get(path) if path in self.answers else None

    def text(self, path: str) -> str:
        assert path == "/metrics"
        return self.metrics

    def merge(self, path: str, body: Content) -> Content:
        self.merged.append((path, body))
        return body


def node(
    name: str, kubelet: str = OLD, containerd: str = "2.3.4", ready: str = "True", **more: t.Any
) -> Content:
    return {
        "metadata": {"name": name, "annotations": more.get("annotations", {})},
        "spec": {"unschedulable": True} if more.get("closed") else {},
        "status": {
            "conditions": [{"type": "Ready", "status": ready, "message": "why"}],
            "nodeInfo": {
                "kubeletVersion": f"v{kubelet}",
                "containerRuntimeVersion": f"containerd://v{containerd}",
            },
        },
    }


def workload(kind: str, image: str, **status: int) -> Content:
    return {
        "kind": kind,
        "metadata": {"generation": 1, "resourceVersion": "7"},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "x", "image": image}]}}},
        "status": {"observedGeneration": 1, **status},
    }


def cluster(
    servers: Mapping[str, str], nodes: list[Content], proxy: str = OLD, coredns: str = "1.14.7"
) -> Table:
    pods = [
        {"spec": {"nodeName": name, "containers": [{"image": f"registry.k8s.io/kube-apiserver:v{version}"}]}}
        for name, version in servers.items()
    ]
    apps = "/apis/apps/v1/namespaces/kube-system"
    proxies = {"desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberReady": 2}
    replicas = {"updatedReplicas": 2, "availableReplicas": 2, "replicas": 2}
    return Table(
        {
            "/api/v1/nodes": {"items": nodes},
            "/api/v1/pods": {"items": []},
            "/api/v1/namespaces/kube-system/pods": {"items": []},
            "/api/v1/namespaces/kube-system/pods?component=kube-apiserver": {"items": pods},
            "/apis/policy/v1/poddisruptionbudgets": {"items": []},
            f"{apps}/daemonsets/kube-proxy": workload("DaemonSet", f"r/kube-proxy:v{proxy}", **proxies),
            f"{apps}/deployments/coredns": workload("Deployment", f"r/coredns:v{coredns}", **replicas),
        }
    )


def host(name: str, *groups: str, version: str = NEW, etcd: str = "3.7.3", containerd: str = "2.3.7") -> Host:
    variables = {
        "etcd_version": etcd,
        "containerd_version": containerd,
        "control_plane_coredns_version": "1.14.7",
        "gvisor_version": "20260817.0",
    }
    return Host(name, f"10.0.0.{len(name)}", "", groups, "", {}, (), "azure", "", version, (), variables)


def context(api: Table, hosts: list[Host], etcd: str = "3.6.14", **more: t.Any) -> t.Any:
    site = Site(
        "test", "api:6443", "127.0.0.1", "10.244.0.0/16", "10.96.0.0/16", 24, "cluster.local",
        more.get("version", NEW), 1400, "/store", "", "", {item.name: item for item in hosts},
        drain=DrainPolicy(max_unavailable=1),
    )  # fmt: skip
    names = [item.name for item in hosts if "etcd" in item.groups]
    members = [
        Member(
            name,
            "",
            healthy=True,
            cluster="c",
            member=name,
            leader=names[0],
            version=etcd,
            listed=tuple(names),
        )
        for name in names
    ]
    return types.SimpleNamespace(
        site=site,
        api=lambda: api,
        etcd_members=lambda: more.get("members", members),
        session=types.SimpleNamespace(etcd_context=lambda: None),
        hosts=more.get("named", []),
        arguments=more.get("arguments", {}),
    )
