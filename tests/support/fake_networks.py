# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A cluster in memory that has flannel and Cilium: what DaemonSets and the runtime make of a node."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cilium import migration, turn
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError

from tests.support.fake_nodes import FakeCluster, Refusal, _merge

SYSTEM = "/api/v1/namespaces/kube-system/pods"
ADDRESSES = {"flannel": "10.244.1.7", "cilium": "10.250.1.7"}


class TwoNetworks(FakeCluster):
    """Nodes, each with kube-proxy, an agent, and a pod of a DaemonSet in the pod network.

    ``files`` has the nodes on which Cilium's network file lies, ``rules`` those with rules of kube-proxy,
    ``services`` those whose agent carries services. ``broken`` agents never get ready.
    """

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.files: set[str] = set()
        self.rules: set[str] = set()
        self.services: set[str] = set()
        self.broken: set[str] = set()
        self.tasks: list[tuple[str, str]] = []
        self.node_configs: dict[str, Object] = {}
        self.failing_tasks = False
        command = ["/usr/local/bin/kube-proxy", "--config=/c"]
        self.sets = {
            turn.AGENT: daemon_set("cilium", "agent:1", ["cilium-agent"]),
            turn.KUBE_PROXY: daemon_set("kube-proxy", "kube-proxy:1", command),
        }
        for name in names:
            self.add_node(name)
        self.reconcile()

    def carrier(self, node: str) -> str:
        """Return the network that a pod started on a node now gets its address of."""
        return "cilium" if node in self.files else "flannel"

    def addresses(self, node: str) -> list[str]:
        """Return the addresses of the pods of a node."""
        pods = [pod for pod in self.pods.values() if pod["spec"]["nodeName"] == node]
        return sorted(pod["status"]["podIP"] for pod in pods if "podIP" in pod["status"])

    def reconcile(self) -> None:
        """Let every controller do what it has to."""
        affinity = self.sets[turn.KUBE_PROXY]["spec"]["template"]["spec"].get("affinity")
        for name, node in self.nodes.items():
            moved = migration.is_moved(node)
            if not (affinity and moved):
                if self._make(name, "kube-proxy", "kube-system"):
                    self.rules.add(name)
            else:
                self.pods.pop(("kube-system", f"kube-proxy-{name}"), None)
            if pod := self._make(name, "cilium", "kube-system"):
                if name in self.broken:
                    pod["status"]["conditions"] = []
                elif moved and migration.NODE_CONFIG in self.node_configs:
                    self.files.add(name)
                    self.services.add(name)
                else:
                    self.services.discard(name)
            if pod := self._make(name, "logs", "web"):
                pod["status"]["podIP"] = ADDRESSES[self.carrier(name)]

    def _make(self, node: str, owner: str, namespace: str) -> Object | None:
        if (namespace, f"{owner}-{node}") in self.pods:
            return None
        pod = self.add_pod(f"{owner}-{node}", node, namespace, "DaemonSet")
        pod["metadata"]["ownerReferences"][0]["name"] = owner
        pod["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        pod["spec"]["hostNetwork"] = namespace == "kube-system"
        return pod

    def answer(self, method: str, path: str, query: dict[str, str], body: Object) -> Object:
        """Answer one request."""
        try:
            return self._answer(method, path, query, body)
        finally:
            self.reconcile()

    def _answer(self, method: str, path: str, query: dict[str, str], body: Object) -> Object:
        if path in self.sets:
            if method == "PATCH":
                _merge(self.sets[path], body)
            return self.sets[path]
        if path == migration.NODE_CONFIG and method == "PATCH":
            self.node_configs[path] = body
            return body
        if path.startswith(f"{SYSTEM}/") and method != "DELETE":
            key = ("kube-system", path.rpartition("/")[2])
            if method == "PATCH":
                self.pods[key] = {**body, "status": {"phase": self._run(body)}}
                self.pods[key]["metadata"]["uid"] = f"uid-{self._next()}"
            if key not in self.pods:
                raise Refusal(404, "NotFound")
            return self.pods[key]
        if method == "DELETE":
            # No pod takes its time to end: tests wait for no thread.
            body = {**body, "gracePeriodSeconds": 0}
        return super().answer(method, path, query, body)

    def _run(self, pod: Object) -> str:
        node, container = pod["spec"]["nodeName"], pod["spec"]["containers"][0]
        self.tasks.append((node, " ".join(container["command"])))
        if self.failing_tasks:
            return "Failed"
        if container["command"][0] == "rm":
            assert pod["spec"]["volumes"][0]["hostPath"]["path"] == "/etc/cni/net.d"
            self.files.discard(node)
        else:
            assert ADDRESSES["flannel"] not in self.addresses(node), "they would reach no service any more"
            self.rules.discard(node)
        return "Succeeded"


def daemon_set(name: str, image: str, command: list[str]) -> Object:
    """Return a DaemonSet that runs everywhere."""
    container: dict[str, t.Any] = {"name": name, "image": image, "command": command}
    return {
        "metadata": {"name": name, "generation": 1},
        "spec": {"template": {"spec": {"containers": [container]}}},
        "status": {
            "observedGeneration": 1,
            "desiredNumberScheduled": 1,
            "updatedNumberScheduled": 1,
            "numberAvailable": 1,
        },
    }


class Killed(Exception):
    """The controller's process has ended."""


class DirectApi(Api):
    """A client of such a cluster without a network; ``writes_left`` is how many changes it lives to make."""

    def __init__(self, cluster: TwoNetworks) -> None:
        self.cluster = cluster
        self.server = "https://api.invalid"
        self.writes_left = 1_000_000

    def request(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        content_type: str = "application/json",
        query: t.Mapping[str, str] | None = None,
        timeout: float = 15,
        patience: float | None = None,
        accept: str = "",
        warnings: list[str] | None = None,
    ) -> bytes:
        """Answer at once."""
        if method != "GET":
            self.writes_left -= 1
            if self.writes_left < 0:
                raise Killed
        try:
            with self.cluster.lock:
                made = self.cluster.answer(method, path, dict(query or {}), body or {})
                return json.dumps(made).encode()
        except Refusal as refusal:
            raise ApiError(refusal.status, refusal.reason, refusal.message, f"{method} {path}") from None
