# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Turns a node that was emptied over from one pod network to the other, and back.

All of it goes through the API, and all of it may be repeated: a node of which an earlier run did a part is
simply turned again, which costs a restart of its agent while it is closed.
"""

from __future__ import annotations

import ipaddress
import typing as t
from collections.abc import Callable, Iterator, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cilium import host_pod, migration
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import rollouts
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.cordon import node_path
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.drain import pods_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.pods import is_finished, name_of

_SETS = "/apis/apps/v1/namespaces/kube-system/daemonsets"
KUBE_PROXY, AGENT = f"{_SETS}/kube-proxy", f"{_SETS}/cilium"
_NETWORK_FOLDER = "/etc/cni/net.d"
_SEE_KUBE_PROXY = "See the pods of kube-proxy in kube-system."
_MIRROR = "kubernetes.io/config.mirror"
Say = Callable[[str], None]


class Way(t.NamedTuple):
    """Where nodes go: ``to`` is ``cilium`` or ``flannel``, ``network`` that of the pods there."""

    to: str
    network: ipaddress.IPv4Network

    @property
    def label(self) -> str | None:
        """Value of the node's label, None for no label."""
        return migration.MOVED if self.to == migration.MOVED else None


def prepare(api: Api, way: Way, seconds: float, say: Say) -> None:
    """Tell Cilium and kube-proxy what a moved node is.

    On the way back agents need not run everywhere: one that does not may be the reason for it.

    Raises:
        ClusterError: agents or kube-proxy do not run everywhere after ``seconds``.
    """
    if way.label:
        rollouts.insist(lambda: _rollout(api, AGENT), seconds, say, "Run site.yml, which brings the agents.")
    api.apply(migration.NODE_CONFIG, migration.node_config())
    absent = {"key": migration.LABEL, "operator": "NotIn", "values": [migration.MOVED]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [absent]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    if api.get(KUBE_PROXY)["spec"]["template"]["spec"].get("affinity") != affinity:
        api.merge(KUBE_PROXY, {"spec": {"template": {"spec": {"affinity": affinity}}}})
    rollouts.insist(lambda: _rollout(api, KUBE_PROXY), seconds, say, _SEE_KUBE_PROXY)


def turn(api: Api, name: str, way: Way, seconds: float, say: Say) -> None:
    """Turn one node over; it is cordoned and drained.

    Args:
        api: the cluster.
        name: the node.
        way: where it goes.
        seconds: for each thing that is waited for.
        say: told what it waits for.

    Raises:
        ClusterError: something did not come about in time.
    """

    def wait(judge: rollouts.Judge, remedy: str) -> None:
        rollouts.insist(judge, seconds, lambda text: say(f"{name}: {text}"), remedy)

    api.merge(node_path(name), {"metadata": {"labels": {migration.LABEL: way.label}}})
    wait(lambda: _kube_proxy(api, name, way.label is None), _SEE_KUBE_PROXY)
    _renew_agent(api, name, wait)
    if not way.label:
        # While its file lies there, Cilium would give new pods their addresses.
        host_pod.run(api, name, _leftovers(api, way), seconds, say)
    wait(lambda: _strays(api, name, way.network), f"See kubectl get pods -A -o wide | grep {name}.")
    if way.label:
        # Only now: pods of flannel reach services by kube-proxy's rules alone.
        host_pod.run(api, name, _leftovers(api, way), seconds, say)


def stray_pods(pods: Sequence[Object], network: ipaddress.IPv4Network) -> list[Object]:
    """Return the pods of a node that have no address in a network though they live in the pod network."""
    return [
        pod
        for pod in pods
        if not pod["spec"].get("hostNetwork")
        and not is_finished(pod)
        and _MIRROR not in (pod["metadata"].get("annotations") or {})
        and not _lies_in(pod, network)
    ]


def _lies_in(pod: Object, network: ipaddress.IPv4Network) -> bool:
    address = pod.get("status", {}).get("podIP")
    return bool(address) and ipaddress.ip_address(address) in network


def _strays(api: Api, name: str, network: ipaddress.IPv4Network) -> list[str]:
    """Delete the pods with an address of the other network; say which ones are not recreated yet."""
    found = stray_pods(pods_of(api, name), network)
    for pod in found:
        if pod.get("status", {}).get("podIP") and not pod["metadata"].get("deletionTimestamp"):
            _delete(api, pod)
    return [f"{name_of(pod)} has no address in {network} yet" for pod in found]


def _renew_agent(api: Api, name: str, wait: Callable[[rollouts.Judge, str], None]) -> None:
    """Restart the agent of a node: it reads its configuration when it starts."""
    agents = _pods_of_set(api, name, AGENT)
    before = {pod["metadata"]["uid"] for pod in agents}
    for pod in agents:
        _delete(api, pod)

    def judge() -> list[str]:
        now = _pods_of_set(api, name, AGENT)
        new = [pod for pod in now if pod["metadata"]["uid"] not in before]
        ready = len(new) == len(now) and any(map(_is_ready, new))
        return [] if ready else ["its agent of Cilium is not ready yet"]

    wait(judge, f"See the logs of the pod of Cilium's DaemonSet on {name}, in kube-system.")


def _delete(api: Api, pod: Object) -> None:
    """Delete this very pod, and not one that has taken its name meanwhile."""
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
    api.delete(path, {"preconditions": {"uid": metadata["uid"]}})


def _kube_proxy(api: Api, name: str, wanted: bool) -> list[str]:
    pods = _pods_of_set(api, name, KUBE_PROXY)
    if wanted:
        return [] if any(map(_is_ready, pods)) else ["kube-proxy is not ready yet"]
    return ["kube-proxy has not stopped yet"] if pods else []


def _pods_of_set(api: Api, node: str, path: str) -> list[Object]:
    name = path.rpartition("/")[2]
    return [pod for pod in pods_of(api, node) if name in _owners(pod)]


def _owners(pod: Object) -> Iterator[str]:
    for owner in pod["metadata"].get("ownerReferences") or ():
        if owner.get("kind") == "DaemonSet" and pod["metadata"]["namespace"] == "kube-system":
            yield str(owner["name"])


def _is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready and not pod["metadata"].get("deletionTimestamp")


def _leftovers(api: Api, way: Way) -> host_pod.Task:
    """Return what takes away what the former carrier left on the host."""
    if way.label:
        container = api.get(KUBE_PROXY)["spec"]["template"]["spec"]["containers"][0]
        command = [container["command"][0], "--cleanup"]
        return host_pod.Task("take away kube-proxy's rules", container["image"], command)
    image = api.get(AGENT)["spec"]["template"]["spec"]["containers"][0]["image"]
    command = ["rm", "-f", f"/host/{migration.HOST_FILE}"]
    return host_pod.Task("take away Cilium's network file", image, command, _NETWORK_FOLDER)


def _rollout(api: Api, path: str) -> list[str]:
    name = path.rpartition("/")[2]
    item = api.find(path)
    if item is None:
        return [f"the cluster has no DaemonSet {name}"]
    return [] if rollouts.is_done(item) else [f"the DaemonSet {name} does not run everywhere as declared"]
