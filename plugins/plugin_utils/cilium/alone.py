# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The last stage of moving a cluster: Cilium enforces policies, and flannel and kube-proxy are taken away.

What is left of it is read from the cluster, and every part may be repeated: as long as one of its objects is
there, it is not done. Nothing of it can be undone.
"""

from __future__ import annotations

import concurrent.futures
import typing as t
from collections.abc import Callable, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cilium import host_pod, migration, rollout, turn
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cilium.objects import CONFIGURATION
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import rollouts
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.cordon import cordoned_here, is_ready
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.drain import pods_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.objects import apply_objects

ENFORCE, FLANNEL, PROXY, RECORD = "enforce-policies", "remove-flannel", "remove-kube-proxy", "record-cilium"
_CORE, _RBAC = "/api/v1/namespaces", "/apis/rbac.authorization.k8s.io/v1"
CONFIG = f"{_CORE}/kube-system/configmaps/{CONFIGURATION[1]}"
FLANNEL_SPACE = f"{_CORE}/kube-flannel"
FLANNEL_SET = "/apis/apps/v1/namespaces/kube-flannel/daemonsets/kube-flannel-ds"
PROXY_CONFIG = f"{_CORE}/kube-system/configmaps/kube-proxy"
OF_FLANNEL = (
    f"{_RBAC}/clusterrolebindings/flannel",
    f"{_RBAC}/clusterroles/flannel",
    FLANNEL_SET,
    FLANNEL_SPACE,
)
"""What roles/flannel applies, in the order in which it goes; the namespace takes what is in it with it."""
OF_PROXY = (
    turn.KUBE_PROXY,
    f"{_RBAC}/clusterrolebindings/kubeadm:node-proxier",
    f"{_RBAC}/namespaces/kube-system/rolebindings/kube-proxy",
    f"{_RBAC}/namespaces/kube-system/roles/kube-proxy",
    f"{_CORE}/kube-system/serviceaccounts/kube-proxy",
    PROXY_CONFIG,
)
"""What kubeadm 1.36's addon applies. Without the ConfigMap an upgrade by kubeadm makes none of it again."""
NOWHERE = {migration.LABEL: "nowhere"}
_NETWORK_FOLDER = "/etc/cni/net.d"
_CLEAN = (
    "set -e; for each in /sys/class/net/flannel.* /sys/class/net/cni0; do "
    '[ ! -e "$each" ] || ip link delete "${each##*/}"; done; '
    "for each in ip:flannel-ipv4 ip6:flannel-ipv6; do "
    'nft delete table "${each%%:*}" "${each#*:}" 2>/dev/null || :; done; '
    "rm -f /host/10-flannel.conflist /host/10-flannel.conflist.cilium_bak"
)
"""Takes away flannel's interfaces, its tables and its network file; what is not there is no matter.

An agent that is alone gives network files of others that name (``cni-exclusive``).
"""
_PARALLEL = 16
Say = Callable[[str], None]


def obstacles(api: Api, nodes: Mapping[str, Object], network: t.Any) -> list[str]:
    """Return what speaks against the last stage: nodes of which flannel or nobody carries the pods.

    Args:
        api: the cluster.
        nodes: its nodes, by name.
        network: that of pods of nodes that are moved.
    """
    found = []
    for name, node in sorted(nodes.items()):
        if not migration.is_moved(node):
            found.append(f"{name} is not moved")
        elif not is_ready(node):
            found.append(f"{name} is not Ready")
        elif cordoned_here(node):
            found.append(f"{name} was not opened again")
        elif strays := turn.stray_pods(pods_of(api, name), network):
            found.append(f"{name} has {len(strays)} pods without an address in {network}")
    return found


def left(api: Api, recorded: bool) -> list[str]:
    """Return the parts that are still to do, in their order.

    Args:
        api: the cluster.
        recorded: whether the site knows already that Cilium is its pod network.
    """
    there = {
        ENFORCE: (migration.NODE_CONFIG,),
        FLANNEL: OF_FLANNEL,
        PROXY: OF_PROXY,
    }
    found = [part for part, paths in there.items() if any(api.find(path) is not None for path in paths)]
    if ENFORCE not in found and (api.find(CONFIG) or {}).get("data", {}).get("enable-policy") == "never":
        found.insert(0, ENFORCE)
    return found if recorded else [*found, RECORD]


def enforce(api: Api, objects: Sequence[Object], seconds: float, say: Say) -> None:
    """Give the agents the configuration of a site that has only Cilium, and wait until all have it.

    Args:
        api: the cluster.
        objects: Cilium's, for such a site.
        seconds: without any progress.
        say: told what it waits for.

    Raises:
        ClusterError: agents do not come up; nothing of flannel was touched.
    """
    apply_objects(api, objects)
    rollout.wait(api, seconds, say)
    # An agent that starts before this has the same configuration from both.
    api.delete(migration.NODE_CONFIG)


def remove_flannel(api: Api, seconds: float, say: Say) -> None:
    """Stop flannel, take what it left off every node, and then its objects out of the cluster.

    Raises:
        ClusterError: something did not come about in time.
    """
    found = api.find(FLANNEL_SET)
    if found is not None:
        # Its pods would write the network file again when they start. The set itself says with which image.
        pod = found["spec"]["template"]["spec"]
        if pod.get("nodeSelector") != NOWHERE:
            api.merge(FLANNEL_SET, {"spec": {"template": {"spec": {"nodeSelector": NOWHERE}}}})
        rollouts.insist(lambda: _still_there(api), seconds, say, "See kubectl -n kube-flannel get pods.")
        task = host_pod.Task(
            "take away what flannel left",
            pod["containers"][0]["image"],
            ["sh", "-c", _CLEAN],
            _NETWORK_FOLDER,
        )
        names = [str(node["metadata"]["name"]) for node in api.get("/api/v1/nodes")["items"]]
        with concurrent.futures.ThreadPoolExecutor(_PARALLEL) as pool:
            running = [pool.submit(host_pod.run, api, name, task, seconds, say) for name in names]
        for each in running:
            each.result()
    _remove(api, OF_FLANNEL, seconds, say)


def remove_proxy(api: Api, seconds: float, say: Say) -> None:
    """Take kube-proxy's objects out of the cluster; it runs nowhere any more.

    Raises:
        ClusterError: something did not come about in time.
    """
    _remove(api, OF_PROXY, seconds, say)


def _remove(api: Api, paths: Sequence[str], seconds: float, say: Say) -> None:
    for path in paths:
        api.delete(path)
    rollouts.insist(
        lambda: [f"{path.rpartition('/')[2]} is still there" for path in paths if api.find(path) is not None],
        seconds,
        say,
        f"See what keeps it: kubectl get --raw {paths[-1]}.",
    )


def _still_there(api: Api) -> list[str]:
    item = api.get(FLANNEL_SET)
    if not rollouts.is_taken_up(item):
        return ["the DaemonSet of flannel was not looked at yet"]
    pods = api.get(f"{FLANNEL_SPACE}/pods", labelSelector="app=flannel")["items"]
    return [f"{len(pods)} pods of flannel have not ended"] if pods else []
