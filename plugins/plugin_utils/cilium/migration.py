# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How Cilium is configured while it takes over from flannel, node after node.

Agents run on all nodes and carry packets between both pod networks, but give no pod an address before their
node has the label. What is written here follows "Migrating a cluster to Cilium" and "Per-node configuration"
of the documentation in Cilium 1.20.1's module; a node that has the label is configured as in the end.
"""

from __future__ import annotations

import typing as t

LABEL = "ironspan.io/pod-network"
MOVED = "cilium"
"""Value of the label of a node whose pods Cilium carries, without kube-proxy."""
NETWORK_FILE = "write-cni-conf-when-ready"
HOST_FILE = "05-cilium.conflist"
"""The runtime takes the first file of its folder: this one; flannel's stays there for the way back."""
BESIDE: dict[str, str] = {
    "custom-cni-conf": "true",
    # flannel's file stays where it is.
    "cni-exclusive": "false",
    "cni-uninstall": "false",
    # Cilium knows no identity of flannel's pods, so every policy would stop them.
    "enable-policy": "never",
    # Packets between the networks go by the host's routes, and through its egress table.
    "enable-host-legacy-routing": "true",
    "kube-proxy-replacement": "false",
    "enable-bpf-masquerade": "false",
    # flannel's pods are not restarted because Cilium does not know them, nor those cordoned that have none.
    "unmanaged-pod-watcher-interval": "0",
    "set-cilium-node-taints": "false",
}
"""Entries of ``cilium-config`` that differ from those of a site that has only Cilium."""
NODE_CONFIG = "/apis/cilium.io/v2/namespaces/kube-system/ciliumnodeconfigs/ironspan-moved"


def is_moved(node: dict[str, t.Any]) -> bool:
    """Tell whether Cilium carries, or is about to carry, the pods of a node."""
    return bool((node["metadata"].get("labels") or {}).get(LABEL) == MOVED)


def node_config() -> dict[str, t.Any]:
    """Return the object that configures the agents of nodes with the label."""
    namespace, _, name = NODE_CONFIG.partition("namespaces/")[2].split("/")
    return {
        "apiVersion": "cilium.io/v2",
        "kind": "CiliumNodeConfig",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "nodeSelector": {"matchLabels": {LABEL: MOVED}},
            "defaults": {
                NETWORK_FILE: f"/host/etc/cni/net.d/{HOST_FILE}",
                "custom-cni-conf": "false",
                "kube-proxy-replacement": "true",
                "enable-bpf-masquerade": "true",
            },
        },
    }
