# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Nodes whose kubelet does not answer: proof that it is so, and what may be done about their pods then.

Unreachable is not the same as dead: behind a cut link containers go on running, and write to their volumes.
Nothing here can tell the two apart, so pods are deleted from the API only after somebody who can look at the
machine consented, and only when everything that can be asked says that the kubelet is out of reach.
"""

from __future__ import annotations

import concurrent.futures
import datetime
import socket
import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.cordon import (
    is_ready,
    node_path,
    ready_condition,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.pods import Fate, fate_of, name_of

_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
WATCH_SECONDS = 12.0
"""A kubelet renews its lease every 10 s (a quarter of nodeLeaseDurationSeconds, 40 by default)."""
_CONNECT_SECONDS = 3.0
_TRIES = 2
"""Until silence counts: packets are lost on the way, and a controller may not be let run for seconds."""
_KUBELET_PORT = 10250
_PARALLEL = 32


class Silence(t.NamedTuple):
    """Whether a kubelet is out of reach, and what shows it."""

    proven: bool
    evidence: str


def is_silent(node: Object) -> bool:
    """Tell whether the cluster itself has not heard of a node's kubelet for a while."""
    return ready_condition(node).get("status") == "Unknown"


def silent_since(node: Object) -> str:
    """Return since when, in the API's form."""
    return str(ready_condition(node).get("lastTransitionTime", ""))


def prove_silence(api: Api, node: Object, watch_seconds: float = WATCH_SECONDS) -> Silence:
    """Ask everything that could show that a kubelet still runs.

    The cluster must have given it up, its lease must not move, and its port must not answer the controller.

    Args:
        api: the cluster.
        node: its Node object.
        watch_seconds: how long the lease is watched, longer than a kubelet takes to renew it.
    """
    if not is_silent(node):
        return Silence(False, "the cluster hears of its kubelet")
    name = str(node["metadata"]["name"])
    before = _renewed(api, name)
    address, port = kubelet_endpoint(node)
    if kubelet_answers(node):
        return Silence(False, f"its kubelet answers at {address}:{port}, although the cluster lost it")
    time.sleep(watch_seconds)
    if _renewed(api, name) != before:
        return Silence(False, "its kubelet has just renewed its lease")
    where = f"{address}:{port}" if address else "it"
    return Silence(
        True,
        f"not heard of since {silent_since(node)}, lease not renewed since {before or 'ever'}, "
        f"nothing answers at {where}",
    )


def kubelet_endpoint(node: Object) -> tuple[str, int]:
    """Return address and port of a node's kubelet as the node said; no address when it said none."""
    status = node.get("status", {})
    addresses = status.get("addresses") or ()
    address = next((str(entry["address"]) for entry in addresses if entry["type"] == "InternalIP"), "")
    endpoint = status.get("daemonEndpoints", {}).get("kubeletEndpoint", {})
    return address, int(endpoint.get("Port") or _KUBELET_PORT)


def kubelet_answers(node: Object) -> bool:
    """Tell whether something answers the controller at a node's kubelet port."""
    return _answers(*kubelet_endpoint(node))


def declare_stopped(api: Api, names: t.Sequence[str]) -> list[str]:
    """Tell the cluster at once what it would find out in 40 s: that kubelets were taken off their hosts.

    kubeadm does not let a host join while its former life is still called Ready. Only a host that refuses the
    connection to its kubelet's port is meant: it is up, and no kubelet runs there.

    Args:
        api: the cluster.
        names: hosts that are about to join.

    Returns:
        Those whose Nodes were called Ready.
    """
    with concurrent.futures.ThreadPoolExecutor(_PARALLEL) as pool:
        done = pool.map(lambda name: _declare_stopped(api, name), names)
        return [name for name, changed in zip(names, done, strict=True) if changed]


def _declare_stopped(api: Api, name: str) -> bool:
    path = node_path(name)
    node = api.find(path)
    if node is None or not is_ready(node) or not _refuses(*kubelet_endpoint(node)):
        return False
    now = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}"
    condition = {
        "type": "Ready",
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "ironspan: no kubelet runs on the host, which is about to join again",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
    body = {"status": {"conditions": [condition]}}
    try:
        api.request("PATCH", f"{path}/status", body, "application/strategic-merge-patch+json")
    except ApiError:
        # It only saves time: without it the host waits until the cluster finds out.
        return False
    return True


def delete_pods(api: Api, pods: t.Iterable[Object]) -> list[str]:
    """Delete pods from the API without waiting for a kubelet that cannot confirm it.

    Pods of DaemonSets and static pods go when their Node does.

    Returns:
        Those that were there, NAMESPACE/NAME.
    """
    deleted = []
    for pod in pods:
        if fate_of(pod) is Fate.STAYS:
            continue
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        # The uid keeps it from a pod of the same name that was started elsewhere meanwhile.
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
        try:
            gone = api.delete(path, body)
        except ApiError as error:
            if error.status != 409:
                raise
            gone = False
        if gone:
            deleted.append(name_of(pod))
    return deleted


def _renewed(api: Api, name: str) -> str:
    lease = api.find(f"{_LEASES}/{name}") or {}
    return str(lease.get("spec", {}).get("renewTime", ""))


def _refuses(address: str, port: int) -> bool:
    """Tell whether a host is up and nothing listens at the port."""
    if not address:
        return False
    try:
        socket.create_connection((address, port), _CONNECT_SECONDS).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        pass
    return False


def _answers(address: str, port: int) -> bool:
    if not address:
        return False
    for _ in range(_TRIES):
        try:
            socket.create_connection((address, port), _CONNECT_SECONDS).close()
        except TimeoutError:
            continue
        except OSError:
            return False
        return True
    return False
