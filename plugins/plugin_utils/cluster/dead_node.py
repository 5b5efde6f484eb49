# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Nodes whose kubelet does not answer: proof that it is so, and what may be done about their pods then.

Unreachable is not the same as dead: behind a cut link containers go on running, and write to their volumes.
Nothing here can tell the two apart, so pods are deleted from the API only after somebody who can look at the
machine consented, and only when everything that can be asked says that the kubelet is out of reach.
"""

from __future__ import annotations

import socket
import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.cordon import ready_condition
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.errors import ApiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.pods import Fate, fate_of, name_of

_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
WATCH_SECONDS = 12.0
"""A kubelet renews its lease every 10 s (a quarter of nodeLeaseDurationSeconds, 40 by default)."""
_CONNECT_SECONDS = 3.0
_KUBELET_PORT = 10250


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
    if _answers(address, port):
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


def _answers(address: str, port: int) -> bool:
    if not address:
        return False
    try:
        socket.create_connection((address, port), _CONNECT_SECONDS).close()
    except OSError:
        return False
    return True
