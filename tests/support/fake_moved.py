# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A cluster in memory all nodes of which are moved to Cilium; flannel and kube-proxy left things there."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cilium import alone, migration, rollout
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Object

from tests.support.fake_networks import ADDRESSES, TwoNetworks, daemon_set
from tests.support.fake_nodes import Refusal, _merge

CONFIGURATION: Object = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "cilium-config", "namespace": "kube-system"},
    "data": {"enable-policy": "default"},
}


class Moved(TwoNetworks):
    """Nodes of which Cilium carries the pods, flannel idle beside it.

    ``flannel`` has the nodes that still have flannel's interfaces and file; ``objects`` what is in the
    cluster beside nodes, pods and the agents' set, by path.
    """

    def __init__(self, *names: str) -> None:
        self.flannel: set[str] = set()
        self.objects: dict[str, Object] = {}
        super().__init__(*names)
        for name in names:
            self.nodes[name]["metadata"]["labels"] = {migration.LABEL: migration.MOVED}
        for pod in self.pods.values():
            if "podIP" in pod["status"]:
                pod["status"]["podIP"] = ADDRESSES["cilium"]
        for path in [*alone.OF_FLANNEL, *alone.OF_PROXY]:
            self.objects.setdefault(path, {"metadata": {"name": path.rpartition("/")[2]}})
        self.objects[alone.FLANNEL_SET] = daemon_set("kube-flannel-ds", "flannel:1", ["flanneld"])
        self.objects[alone.CONFIG] = {**CONFIGURATION, "data": dict(migration.BESIDE)}
        operator = {"observedGeneration": 1, "updatedReplicas": 1, "availableReplicas": 1, "replicas": 1}
        self.objects[rollout.OPERATOR] = {
            "metadata": {"generation": 1},
            "spec": {"replicas": 1},
            "status": operator,
        }
        self.node_configs[migration.NODE_CONFIG] = migration.node_config()
        self.reconcile()
        self.flannel = set(names)

    def carrier(self, node: str) -> str:
        """Return the network that a pod started on a node now gets its address of."""
        return "cilium"

    def runs_flannel(self) -> bool:
        """Tell whether flannel's pods run."""
        found = self.objects.get(alone.FLANNEL_SET)
        return bool(found and found["spec"]["template"]["spec"].get("nodeSelector") != alone.NOWHERE)

    @property
    def enforces(self) -> bool:
        """Tell whether agents were told to enforce policies."""
        return bool(self.objects[alone.CONFIG]["data"].get("enable-policy") != "never")

    def _answer(self, method: str, path: str, query: dict[str, str], body: Object) -> Object:
        if path == "/api/v1":
            return {"resources": [{"name": "configmaps", "kind": "ConfigMap", "namespaced": True}]}
        if path == f"{alone.FLANNEL_SPACE}/pods":
            return {"items": [{"metadata": {"name": name}} for name in self.flannel if self.runs_flannel()]}
        if path == migration.NODE_CONFIG and method in ("GET", "DELETE"):
            if path not in self.node_configs:
                raise Refusal(404, "NotFound")
            return self.node_configs.pop(path) if method == "DELETE" else self.node_configs[path]
        if path in self.objects:
            return self._object(method, path, body)
        if method in ("GET", "DELETE") and path in (*alone.OF_FLANNEL, *alone.OF_PROXY):
            raise Refusal(404, "NotFound")
        return super()._answer(method, path, query, body)

    def _object(self, method: str, path: str, body: Object) -> Object:
        if method == "DELETE":
            if path == alone.FLANNEL_SPACE:
                inside = "/namespaces/kube-flannel/"
                self.objects = {one: what for one, what in self.objects.items() if inside not in one}
            assert self.enforces, "flannel or kube-proxy went before Cilium was alone"
            return self.objects.pop(path)
        if method == "PATCH" and path == alone.CONFIG:
            self.objects[path] = body
        elif method == "PATCH":
            _merge(self.objects[path], body)
        return self.objects[path]

    def _run(self, pod: Object) -> str:
        container: t.Any = pod["spec"]["containers"][0]
        if container["command"][0] != "sh":
            return super()._run(pod)
        assert not self.runs_flannel(), "it would write its file again"
        assert self.enforces
        self.tasks.append((pod["spec"]["nodeName"], container["image"]))
        if self.failing_tasks:
            return "Failed"
        self.flannel.discard(pod["spec"]["nodeName"])
        return "Succeeded"
