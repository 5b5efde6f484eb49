# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Moving a running cluster to Cilium: a second pod network that has room for all and meets no other."""

from __future__ import annotations

import ipaddress

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.cilium import refuse
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.networks import network_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import sizes
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.day_zero import CNI, MIGRATION
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft

POD_INTERFACES = ["cni0", "lxc*"]
OVERLAY_INTERFACES = ["flannel.1", "cilium_vxlan", "cilium_host"]
"""Where packets of both kinds of pods leave and enter a host while a cluster is being moved."""
_EXAMPLE = "10.245.0.0/16"


def check_network(draft: Draft) -> None:
    """The network that pods move to is valid, apart from all others, and large enough."""
    if not draft.site_value(MIGRATION):
        return
    if draft.site_value(CNI) != "flannel":
        refuse(draft, MIGRATION, "is for moving from flannel, and the pod network is Cilium", "take it out")
        return
    network = network_of(draft, MIGRATION, report=True)
    if network is None:
        return
    if not network.is_private and network not in ipaddress.ip_network("100.64.0.0/10"):
        refuse(
            draft,
            MIGRATION,
            f"{network} is not a private network (RFC 1918, RFC 6598)",
            f"write for example {_EXAMPLE}",
        )
    for name, other in _others(draft):
        if other.overlaps(network):
            refuse(draft, MIGRATION, f"{network} overlaps {name} ({other})", "write a network apart from it")
    mask = draft.site_value("site_node_cidr_mask")
    if isinstance(mask, int):
        _check_room(draft, network, mask)


def _others(draft: Draft) -> list[tuple[str, ipaddress.IPv4Network]]:
    found = [(name, network_of(draft, name)) for name in ("site_pod_cidr", "site_service_cidr")]
    for text in draft.site_value("egress_node_networks") or ():
        try:
            found.append(("egress_node_networks", ipaddress.IPv4Network(str(text))))
        except ValueError:
            continue  # reported where that variable is checked
    return [(name, network) for name, network in found if network is not None]


def _check_room(draft: Draft, network: ipaddress.IPv4Network, mask: int) -> None:
    kubelets = len({host.name for group in ("nodes", "control_plane") for host in draft.members(group)})
    planned = draft.site_value("site_planned_nodes")
    if isinstance(planned, int) and 0 < planned <= sizes.LARGEST:
        kubelets = max(kubelets, sizes.profile_for(planned).nodes)
    room = 2 ** max(mask - network.prefixlen, 0) if mask >= network.prefixlen else 0
    if room < kubelets:
        prefix = mask - max(kubelets - 1, 0).bit_length()
        refuse(
            draft,
            MIGRATION,
            f"{network} has room for {room} nodes with a /{mask} each (site_node_cidr_mask), "
            f"the site has or plans {kubelets}",
            f"write a network of /{prefix} or larger",
        )


def check_beside(draft: Draft) -> None:
    """Two tunnels and two kinds of pods on one host do not meet."""
    if not draft.site_value(MIGRATION):
        return
    if draft.site_value("cilium_routing") != "tunnel":
        refuse(
            draft,
            "cilium_routing",
            "is native, and packets between the two pod networks go through a tunnel",
            "take it out until the cluster is moved",
        )
    if draft.site_value("cilium_tunnel_port") == draft.site_value("flannel_port"):
        refuse(
            draft,
            "cilium_tunnel_port",
            f"is {draft.site_value('flannel_port')}, the port of flannel's tunnel on the same hosts",
            "write cilium_tunnel_port: 8473, and keep it when the cluster is moved",
        )
    wanted = {"egress_pod_interfaces": POD_INTERFACES, "egress_overlay_interfaces": OVERLAY_INTERFACES}
    for variable, names in wanted.items():
        given = draft.site_value(variable)
        if draft.site_value("egress_enabled") and isinstance(given, list) and set(given) != set(names):
            listed = ", ".join(f'"{name}"' if "*" in name else name for name in names)
            refuse(
                draft,
                variable,
                "does not name the interfaces of both pod networks: the hosts' tables would miss packets",
                f"write {variable}: [{listed}] while the cluster is being moved ({MIGRATION})",
            )


CHECKS = (check_network, check_beside)
