# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""One pod network: what Cilium needs of a site, and what does not go with it."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import day_zero
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers

CNI, MIGRATION = day_zero.CNI, day_zero.MIGRATION
LAB_ONLY = ("cilium_agent_capabilities_dropped", "cilium_kernel_sysctl_folder")
"""Variables that weaken something, for labs on machines that cannot do without."""
POD_INTERFACES = ["lxc*"]
OVERLAY = "cilium_vxlan"
_KUBE_PROXY = ("control_plane_kube_proxy_mode", "control_plane_conntrack_")


def has_cilium(draft: Draft) -> bool:
    """Tell whether Cilium is on the hosts: it is the site's choice, or the site is being moved to it."""
    return draft.site_value(CNI) == "cilium" or bool(draft.site_value(MIGRATION))


def check_one_network(draft: Draft) -> None:
    """Nothing is set for a pod network that the site has not chosen."""
    chosen = draft.site_value(CNI)
    if chosen not in all_layers().pod_networks or draft.site_value(MIGRATION):
        return
    others = [name for name in all_layers().pod_networks if name != chosen]
    for option in draft.specification.options.values():
        is_proxy = option.name.startswith(_KUBE_PROXY) and chosen == "cilium"
        foreign = option.role in others or is_proxy
        if not foreign or draft.writer(option.name) is None or _only_lab(draft, option.name):
            continue
        meant = "kube-proxy, whose place Cilium takes" if is_proxy else option.role
        draft.problems.add(
            draft.site_place(option.name),
            option.name,
            f"is for {meant}, and the pod network is {chosen} ({CNI}): a site has one",
            f"take it out, or write {CNI}: {others[0]} before the cluster is made",
        )


def _only_lab(draft: Draft, name: str) -> bool:
    """Tell whether a lab's inventory may have it at hand for the case that this network is chosen."""
    of_lab = (*LAB_ONLY, "cilium_kernel_modules", _KUBE_PROXY[1])
    return name.startswith(of_lab) and bool(draft.site_value("site_lab"))


def check_operators(draft: Draft) -> None:
    """No two pods of the operator are on one node."""
    variable = "cilium_operator_replicas"
    wanted = draft.site_value(variable)
    nodes = {host.name for group in ("nodes", "control_plane") for host in draft.members(group)}
    if has_cilium(draft) and isinstance(wanted, int) and nodes and wanted > len(nodes):
        message = f"{wanted} pods of the operator are more than {len(nodes)} nodes take, one each"
        refuse(draft, variable, message, "write 2, or 0 for as many as the site needs")


def check_mtu(draft: Draft) -> None:
    """No packet between two hosts is larger than the path carries."""
    variable = "cilium_mtu"
    mtu, path = draft.site_value(variable), draft.site_value("site_wan_mtu")
    if not has_cilium(draft) or not isinstance(mtu, int) or not isinstance(path, int):
        return
    least = all_layers().limits["site_wan_mtu"].smallest
    if mtu and not least <= mtu <= path:
        why = f"larger than the path's {path} (site_wan_mtu)" if mtu > path else f"smaller than {least}"
        draft.problems.add(
            draft.site_place(variable),
            variable,
            f"{mtu} bytes are {why}",
            f"write {path} or less, or 0 for what the path carries",
        )


def check_lab_only(draft: Draft) -> None:
    """What makes up for a lab's machine stays in labs."""
    if draft.site_value("site_lab"):
        return
    for variable in LAB_ONLY:
        if draft.writer(variable) and draft.site_value(variable) != draft.specification.defaults[variable]:
            draft.problems.add(
                draft.site_place(variable),
                variable,
                "takes something from Cilium's agent that only a lab's machine has not got",
                "take it out; the hosts of a site have all that the agent needs",
            )


def check_beside(draft: Draft) -> None:
    """What enforces policies and answers names beside Cilium goes with it, or is not there."""
    if not has_cilium(draft):
        return
    if draft.site_value("site_pod_cidr_ipv6"):
        refuse(draft, "site_pod_cidr_ipv6", "pods have IPv4 addresses only with Cilium here", "take it out")
    if draft.site_value("egress_policy_image"):
        refuse(
            draft,
            "egress_policy_image",
            "would enforce network policies beside Cilium, which enforces them itself",
            "take it out",
        )
    moving = bool(draft.site_value(MIGRATION))
    interfaces = draft.site_value("egress_pod_interfaces")
    if draft.site_value("egress_enabled") and not moving and interfaces != POD_INTERFACES:
        refuse(
            draft,
            "egress_pod_interfaces",
            "does not name the interfaces that Cilium gives to pods: the hosts' tables would see no packet",
            'write egress_pod_interfaces: ["lxc*"] and egress_overlay_interfaces: [cilium_vxlan]',
        )
    overlay = draft.site_value("egress_overlay_interfaces")
    is_tunnel = draft.site_value("cilium_routing") == "tunnel" and isinstance(overlay, list)
    if draft.site_value("egress_enabled") and not moving and is_tunnel and OVERLAY not in overlay:
        variable = "egress_overlay_interfaces" if draft.writer("egress_overlay_interfaces") else CNI
        draft.problems.add(
            draft.site_place(variable),
            "egress_overlay_interfaces",
            f"lacks {OVERLAY}, by which packets leave for pods of other hosts: they would be dropped",
            f"write egress_overlay_interfaces: [{OVERLAY}]",
        )
    _check_proxies(draft)
    for host in draft.hosts.values():
        if host.values.get("dns_node_cache"):
            draft.problems.add(
                draft.place(host, "dns_node_cache"),
                "dns_node_cache",
                "pods' questions to a cache on their host go past Cilium's policies about names",
                "write dns_node_cache: false",
            )
            return


def _check_proxies(draft: Draft) -> None:
    """A proxy with a kubelet is a node, and to Cilium a node is no address that a policy could open."""
    if not draft.site_value("egress_namespaces"):
        return
    for host in draft.members("egress_proxy"):
        if "nodes" in host.groups or "control_plane" in host.groups:
            draft.problems.add(
                draft.group_place("egress_proxy"),
                "groups.egress_proxy",
                f"{host.name} has a kubelet: Cilium lets no pod of egress_namespaces to a port of a node",
                "take a host that is neither in nodes nor in control_plane",
            )


def check_unchanged(draft: Draft) -> None:
    """The pod network is the one that the cluster was made with."""
    store, now = draft.site_value("site_pki_store"), draft.site_value(CNI)
    if not isinstance(store, str) or not store:
        return
    before = day_zero.carried_by(store) or now
    if now in all_layers().pod_networks and now != before:
        refuse(
            draft,
            CNI,
            f"is {now}, and the cluster was made with {before}",
            f"write {before}; moving a running cluster is a migration (docs/cilium.md, Moving a cluster)",
        )


def refuse(draft: Draft, variable: str, message: str, remedy: str) -> None:
    """Report a variable of the site where it was written."""
    draft.problems.add(draft.site_place(variable), variable, message, remedy)


CHECKS = (check_one_network, check_operators, check_mtu, check_lab_only, check_beside, check_unchanged)
