# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A site must fit the size that it is planned for, and its networks those that its cluster was made with."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.networks import network_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import day_zero, sizes
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers

PLANNED = "site_planned_nodes"
MASK = "site_node_cidr_mask"
_NOT_FOR_PODS = 3
"""Addresses of a node's part that no pod gets: the network's own, the bridge's and the broadcast address."""


def kubelets(draft: Draft) -> int:
    """Return how many hosts of the site have a kubelet."""
    return len({host.name for group in ("nodes", "control_plane") for host in draft.members(group)})


def check_planned(draft: Draft) -> None:
    """The pod network has room for what is planned, and not more hosts are there than that."""
    planned, there = draft.site_value(PLANNED), kubelets(draft)
    if not isinstance(planned, int) or not 0 < planned <= sizes.LARGEST:
        return
    place = draft.site_place(PLANNED)
    if planned < there:
        draft.problems.add(
            place, PLANNED, f"is {planned}, and the site has {there} nodes", f"write {there} or more"
        )
        return
    pods, mask = network_of(draft, "site_pod_cidr"), draft.site_value(MASK)
    if pods is None or not isinstance(mask, int):
        return
    profile = sizes.profile_for(planned)
    room = 2 ** max(mask - pods.prefixlen, 0)
    if room < profile.nodes and room >= there:
        draft.problems.add(
            draft.site_place("site_pod_cidr"),
            "site_pod_cidr",
            f"{pods} holds {room} nodes with a /{mask} each, too few for the size profile of {profile.nodes} "
            f"({PLANNED}: {planned})",
            f"write a network of /{profile.node_room(mask)} or larger before the cluster is made; "
            "it cannot be changed later",
        )


def check_pods_of_a_node(draft: Draft) -> None:
    """A node's part of the pod network has an address for every pod that its kubelet takes."""
    mask, limit = draft.site_value(MASK), all_layers().limits[MASK]
    if not isinstance(mask, int) or not limit.smallest <= mask <= limit.largest:
        return
    addresses = 2 ** max(32 - mask, 0) - _NOT_FOR_PODS
    for host in draft.hosts.values():
        pods = host.values.get("node_kubelet_max_pods")
        if isinstance(pods, int) and pods > addresses:
            written = draft.writer("node_kubelet_max_pods")
            variable = "node_kubelet_max_pods" if written else MASK
            draft.problems.add(
                draft.place(host, variable),
                variable,
                f"{pods} pods a node (node_kubelet_max_pods) do not fit into the {addresses} addresses "
                f"of a /{mask} ({MASK})",
                f"write node_kubelet_max_pods: {max(addresses, 1)} or less, or {MASK}: "
                f"{32 - (pods + _NOT_FOR_PODS - 1).bit_length()} before the cluster is made",
            )
            return


def check_store(draft: Draft) -> None:
    """The store may become as large as the planned size wants it."""
    planned = draft.site_value(PLANNED)
    if not isinstance(planned, int) or planned <= 0:
        return
    least = sizes.profile_for(planned).etcd_quota_bytes
    for host in draft.members("etcd"):
        quota = host.values.get("etcd_quota_bytes")
        if isinstance(quota, int) and quota < least:
            draft.problems.add(
                draft.place(host, "etcd_quota_bytes"),
                "etcd_quota_bytes",
                f"{quota} bytes are too few for {planned} nodes ({PLANNED})",
                f"write {least}",
            )


def check_unchanged(draft: Draft) -> None:
    """Networks are those that the cluster was made with."""
    store = draft.site_value("site_pki_store")
    if not isinstance(store, str) or not store:
        return
    for variable, before in day_zero.made_with(store).items():
        now = draft.site_value(variable)
        if now is not None and now != before:
            draft.problems.add(
                draft.site_place(variable),
                variable,
                f"is {now or 'empty'}, and the cluster was made with {before or 'none'}",
                f"{f'write {before}' if before else 'leave it empty'}; "
                "another one needs another cluster that the nodes move to "
                "(docs/sizes.md, Another pod network)",
            )


CHECKS = (check_planned, check_pods_of_a_node, check_store, check_unchanged)
