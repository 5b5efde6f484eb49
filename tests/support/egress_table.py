# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The table of the layer egress, rendered from its own template without a whole site."""

from __future__ import annotations

import types
from collections.abc import Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.environment import Templates
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.egress import Allowed, Egress
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.egress_names import Proxied
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import ROLES_FOLDER

LATER = 4_102_444_800
"""The first second of 2100."""
_TEMPLATES = Templates(ROLES_FOLDER)


def entry(
    *networks: str, ports: Sequence[str] = ("443",), protocol: str = "tcp", until: int = LATER
) -> Allowed:
    """Return an entry of the allow-list."""
    return Allowed(
        destination=networks[0],
        networks=networks,
        protocol=protocol,
        ports=tuple(ports),
        until=until,
        owner="somebody",
        reason="a test",
    )


def table(
    allowed: Sequence[Allowed] = (),
    *,
    planes: Sequence[str] = ("10.98.0.11",),
    resolvers: Sequence[str] = (),
    node_networks: Sequence[str] = (),
    node_ports: Sequence[str] = (),
    pod_cidr: str = "10.244.0.0/16",
    pod_interfaces: Sequence[str] = ("cni0",),
    overlay_interfaces: Sequence[str] = ("flannel.1",),
    proxies: Sequence[str] = (),
    node_cache: bool = False,
) -> str:
    """Return the table as a host gets it."""
    groups = {"control_plane": planes, "egress_proxy": proxies}
    proxied = (Proxied("pypi.example.com", ("443",), LATER, "somebody", "a test"),)
    site = types.SimpleNamespace(
        pod_cidr=pod_cidr,
        pod_networks=[pod_cidr],
        egress=Egress(tuple(allowed), tuple(node_networks), tuple(node_ports), proxied=proxied),
        group=lambda name: [types.SimpleNamespace(address=address) for address in groups[name]],
    )
    return _TEMPLATES.get("egress/templates/egress.nft.j2").render(
        site=site,
        control_plane_port=6443,
        egress_proxy_port=3128,
        egress_resolvers=list(resolvers),
        egress_pod_interfaces=list(pod_interfaces),
        egress_overlay_interfaces=list(overlay_interfaces),
        dns_node_cache=node_cache,
        dns_node_cache_address="169.254.20.10",
    )
