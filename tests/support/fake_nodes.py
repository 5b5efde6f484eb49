# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The part of a Kubernetes API that draining nodes needs, over real HTTP, with faults that a test chooses."""

from __future__ import annotations

import contextlib
import copy
import http.server
import json
import re
import ssl
import threading
import typing as t
import urllib.parse
from collections.abc import Callable, Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.pods import selects

_POD = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)(/eviction)?")
_NODE = re.compile(r"/api/v1/nodes/([^/]+)(/status)?")
_LEASE = re.compile(r"/apis/coordination\.k8s\.io/v1/namespaces/kube-node-lease/leases/([^/]+)")
_CONFIG_MAP = re.compile(r"/api/v1/namespaces/([^/]+)/configmaps/([^/]+)")
_BUDGETS = re.compile(r"/apis/policy/v1/namespaces/([^/]+)/poddisruptionbudgets")
_REFUSAL = "Cannot evict pod as it would violate the pod's disruption budget."


class Refusal(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, reason: str, message: str = "") -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message or reason


class FakeCluster:
    """Nodes, pods, disruption budgets, leases and notes (ConfigMaps, applied by one manager) in memory.

    ``fault`` is called with method and path before every answer; it may raise ``Refusal``, or return True to
    break the connection. ``controller`` is told of every pod that went.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Object] = {}
        self.pods: dict[tuple[str, str], Object] = {}
        self.budgets: dict[tuple[str, str], Object] = {}
        self.leases: dict[str, str] = {}
        self.config_maps: dict[tuple[str, str], Object] = {}
        self.requests: list[tuple[str, str]] = []
        self.fault: Callable[[str, str], bool | None] = lambda method, path: None
        self.controller: Callable[[Object], None] = lambda pod: None
        self.grace_seconds = 0.05
        self.stubborn: set[str] = set()
        """Pods that do not end when they are told to."""
        self.lock = threading.RLock()
        self._version = 0

    def add_node(self, name: str, ready: str = "True", **spec: t.Any) -> Object:
        """Add a node; ``ready`` is the status of its condition."""
        condition = {"type": "Ready", "status": ready, "lastTransitionTime": "2026-11-21T10:00:00Z"}
        node: Object = {
            "metadata": {
                "name": name,
                "uid": f"node-{name}",
                "resourceVersion": self._next(),
                "annotations": {},
            },
            "spec": spec,
            "status": {
                "conditions": [condition],
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}},
            },
        }
        self.nodes[name] = node
        self.leases[name] = "2026-11-21T09:59:00.000000Z"
        return node

    def add_pod(
        self, name: str, node: str, namespace: str = "web", owner: str = "ReplicaSet", **more: t.Any
    ) -> Object:
        """Add a pod; ``owner`` "" means none; labels, volumes, phase, annotations as given."""
        references = [{"kind": owner, "name": "front", "controller": True}] if owner else []
        pod: Object = {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": f"uid-{self._next()}",
                "labels": more.get("labels", {"app": "front"}),
                "annotations": more.get("annotations", {}),
                "ownerReferences": references,
                "finalizers": more.get("finalizers", []),
            },
            "spec": {"nodeName": node, "volumes": more.get("volumes", [])},
            "status": {"phase": more.get("phase", "Running")},
        }
        with self.lock:
            self.pods[namespace, name] = pod
        return pod

    def add_budget(self, name: str, needed: int, namespace: str = "web", app: str = "front") -> Object:
        """Add a budget: ``needed`` pods with the label must run."""
        budget: Object = {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"minAvailable": needed, "selector": {"matchLabels": {"app": app}}},
            "status": {"desiredHealthy": needed},
        }
        self.budgets[namespace, name] = budget
        return budget

    def names_on(self, node: str) -> list[str]:
        """Return the names of the pods on a node."""
        with self.lock:
            return sorted(name for (_, name), pod in self.pods.items() if pod["spec"]["nodeName"] == node)

    def answer(self, method: str, path: str, query: dict[str, str], body: Object) -> Object:
        """Answer one request."""
        if path == "/api/v1/nodes" and method == "GET":
            return {"items": list(self.nodes.values())}
        if path == "/api/v1/pods" and method == "GET":
            wanted = query.get("fieldSelector", "").removeprefix("spec.nodeName=")
            return {"items": [pod for pod in self.pods.values() if pod["spec"]["nodeName"] == wanted]}
        if match := _NODE.fullmatch(path):
            return self._node(method, match.group(1), body, bool(match.group(2)))
        if match := _POD.fullmatch(path):
            return self._pod(method, (match.group(1), match.group(2)), bool(match.group(3)), body)
        if (match := _LEASE.fullmatch(path)) and match.group(1) in self.leases:
            return {"spec": {"renewTime": self.leases[match.group(1)]}}
        if match := _CONFIG_MAP.fullmatch(path):
            return self._config_map(method, (match.group(1), match.group(2)), body)
        if match := _BUDGETS.fullmatch(path):
            found = [budget for (space, _), budget in self.budgets.items() if space == match.group(1)]
            return {"items": [self._counted(budget) for budget in found]}
        raise Refusal(404, "NotFound", f"{path} not found")

    def _node(self, method: str, name: str, body: Object, status: bool = False) -> Object:
        if name not in self.nodes:
            raise Refusal(404, "NotFound", f'nodes "{name}" not found')
        node = self.nodes[name]
        if method == "DELETE":
            return self.nodes.pop(name)
        if method == "PATCH" and status:
            # A strategic merge: conditions are a map by type.
            given = body["status"]["conditions"]
            kept = [entry for entry in node["status"]["conditions"] if entry["type"] != given[0]["type"]]
            node["status"]["conditions"] = [*kept, *given]
        elif method == "PATCH":
            current = node["metadata"]["resourceVersion"]
            if body["metadata"].get("resourceVersion", current) != current:
                raise Refusal(409, "Conflict", "the object has been modified")
            _merge(node, body)
            node["metadata"]["resourceVersion"] = self._next()
        return node

    def _config_map(self, method: str, key: tuple[str, str], body: Object) -> Object:
        if method == "PATCH":
            # Server-side apply: what the one manager does not name any more goes.
            self.config_maps[key] = body
        if key not in self.config_maps:
            raise Refusal(404, "NotFound", f'configmaps "{key[1]}" not found')
        return self.config_maps.pop(key) if method == "DELETE" else self.config_maps[key]

    def _pod(self, method: str, key: tuple[str, str], evicting: bool, body: Object) -> Object:
        if key not in self.pods:
            raise Refusal(404, "NotFound", f'pods "{key[1]}" not found')
        pod = self.pods[key]
        options = body.get("deleteOptions", {}) if evicting else body
        if options.get("preconditions", {}).get("uid", pod["metadata"]["uid"]) != pod["metadata"]["uid"]:
            raise Refusal(409, "Conflict", "Precondition failed: UID in precondition")
        if evicting:
            self._keep_budgets(pod)
        if options.get("gracePeriodSeconds") == 0:
            self._gone(key, pod)
        elif not pod["metadata"].get("deletionTimestamp"):
            pod["metadata"]["deletionTimestamp"] = "2026-11-21T10:01:00Z"
            if key[1] not in self.stubborn:
                threading.Timer(self.grace_seconds, self._gone, (key, pod)).start()
        return {"kind": "Status", "status": "Success"}

    def _keep_budgets(self, pod: Object) -> None:
        if pod["status"]["phase"] in ("Succeeded", "Failed"):
            return
        labels = pod["metadata"]["labels"]
        budgets = [
            self._counted(budget)
            for (space, _), budget in self.budgets.items()
            if space == pod["metadata"]["namespace"] and selects(budget["spec"]["selector"], labels)
        ]
        if len(budgets) > 1:
            raise Refusal(500, "InternalError", "This pod has more than one PodDisruptionBudget")
        if budgets and budgets[0]["status"]["disruptionsAllowed"] < 1:
            raise Refusal(429, "TooManyRequests", _REFUSAL)

    def _counted(self, budget: Object) -> Object:
        healthy = [
            pod
            for pod in self.pods.values()
            if pod["metadata"]["namespace"] == budget["metadata"]["namespace"]
            and selects(budget["spec"]["selector"], pod["metadata"]["labels"])
            and pod["status"]["phase"] == "Running"
            and not pod["metadata"].get("deletionTimestamp")
        ]
        status = budget["status"]
        status["currentHealthy"] = len(healthy)
        status["disruptionsAllowed"] = max(0, len(healthy) - status["desiredHealthy"])
        return budget

    def _gone(self, key: tuple[str, str], pod: Object) -> None:
        with self.lock:
            if self.pods.get(key) is pod:
                del self.pods[key]
                self.controller(pod)

    def _next(self) -> str:
        with self.lock:
            self._version += 1
            return str(self._version)


def _merge(into: Object, patch: Object) -> None:
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            _merge(into.setdefault(key, {}), value)
        else:
            into[key] = value


@contextlib.contextmanager
def serving(cluster: FakeCluster, patience: float = 2) -> Iterator[Api]:
    """Serve a cluster on a port of the loopback; yields a client."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_request(self) -> None:
            split = urllib.parse.urlsplit(self.path)
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else {}
            status = 200
            with cluster.lock:
                cluster.requests.append((self.command, split.path))
                try:
                    if cluster.fault(self.command, split.path):
                        self.close_connection = True
                        return
                    query = dict(urllib.parse.parse_qsl(split.query))
                    made = copy.deepcopy(cluster.answer(self.command, split.path, query, body))
                except Refusal as refusal:
                    status = refusal.status
                    made = {"kind": "Status", "reason": refusal.reason, "message": refusal.message}
            text = json.dumps(made).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PATCH = do_DELETE = handle_request

        def log_message(self, format: str, *args: t.Any) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield Api(f"http://127.0.0.1:{server.server_port}", ssl.create_default_context(), None, patience)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
