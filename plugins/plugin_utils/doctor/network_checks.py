# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The network as hosts see it: packet sizes across the WAN, names, the way to the API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.estate_checks import has_estate
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.findings import (
    NOTICE,
    PROBLEM,
    Content,
    Evidence,
    Finding,
    apply_command,
    operation,
    together,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Host, Site

SLOW_LINK_MS, VERY_SLOW_LINK_MS = 150.0, 500.0
"""One round trip to the API. Node leases are renewed every 10 s with a time limit of 40 s, so the link is no
danger below this, but every operation feels it."""
SLOW_ANSWER_MS, VERY_SLOW_ANSWER_MS = 500.0, 1000.0
"""Kubernetes' own objective for calls about one object: 99 % within 1 s (SIG scalability)."""


def probes_for(site: Site) -> dict[str, Content]:
    """Return what each host shall ask the network: a peer on the other side, names, the API.

    Peers are those that everything on the other side talks to anyway: control planes first.
    """
    sides = {"azure": "on_prem", "on_prem": "azure"}
    peers = {side: _peers(site.group(side)) for side in sides}
    resolved: list[str] = []
    if has_estate(site):
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.estate_ask import names_of

        resolved = names_of(site)
    probes: dict[str, Content] = {}
    for host in site.hosts.values():
        wanted: Content = {
            "peers": [
                {"name": peer.name, "address": peer.address, "mtu": site.wan_mtu}
                for peer in peers.get(sides.get(host.site_group, ""), ())
            ]
        }
        if "node" in host.layers:
            wanted["dns"] = {
                "server": site.dns_address,
                "name": f"kubernetes.default.svc.{site.cluster_domain}",
            }
            wanted["api"] = {"host": site.api_address, "port": site.api_port}
        if resolved and host.site_group == "azure":
            wanted["resolve"] = resolved
        probes[host.name] = wanted
    return probes


def _peers(hosts: Sequence[Host]) -> list[Host]:
    """Return one host of a side, a second one in case the first is down."""
    leaders = [host for host in hosts if host.in_group("control_plane")]
    return [*leaders, *(host for host in hosts if host not in leaders)][:2]


def mtu(evidence: Evidence) -> Iterator[Finding]:
    """Packets of the declared size that do not pass the WAN: large answers hang, small ones work."""
    answered: dict[str, list[Mapping[str, object]]] = {}
    for name, answer in evidence.answers():
        tried = [probe for probe in answer["network"].get("mtu") or () if probe.get("largest")]
        if answer["network"].get("mtu"):
            answered[name] = tried
    small = [
        (name, min(int(str(probe["largest"])) for probe in tried))
        for name, tried in answered.items()
        if tried and any(int(str(probe["largest"])) < int(str(probe["wanted"])) for probe in tried)
    ]
    if small:
        least = min(largest for _name, largest in small)
        yield Finding(
            PROBLEM,
            f"packets of {evidence.site.wan_mtu} bytes (site_wan_mtu) do not pass the WAN unfragmented, "
            f"the largest that does has about {least}",
            f"write site_wan_mtu: {least // 10 * 10} in the inventory, then {operation(evidence.site)}; "
            "or let the link carry larger packets",
            tuple(name for name, _largest in small),
        )
    silent = [
        (name, "no echo comes back from the other side of the WAN") for name, t in answered.items() if not t
    ]
    yield from together(
        NOTICE if not small else PROBLEM,
        silent,
        lambda _hosts: "check the link, or let ICMP echo and 'fragmentation needed' pass the firewall",
    )


def dns(evidence: Evidence) -> Iterator[Finding]:
    """Names of the cluster, asked of its DNS service from nodes, through the same path as from pods."""
    found = [
        (name, f"the cluster's DNS ({evidence.site.dns_address}) gives {answer['network']['dns']['error']}")
        for name, answer in evidence.answers()
        if "error" in answer["network"].get("dns", {}) and _runs(answer, "kubelet.service")
    ]
    asked = sum("dns" in answer["network"] for _name, answer in evidence.answers())
    everywhere = len(found) == asked
    yield from together(
        PROBLEM,
        found,
        lambda hosts: (
            "kubectl -n kube-system rollout restart deployment/coredns"
            if everywhere
            else apply_command(evidence.site, hosts)
        ),
    )


def api_from_hosts(evidence: Evidence) -> Iterator[Finding]:
    """The way from nodes to the API."""
    site = evidence.site
    refused: list[tuple[str, str]] = []
    for level, least, most in (
        (PROBLEM, VERY_SLOW_LINK_MS, float("inf")),
        (NOTICE, SLOW_LINK_MS, VERY_SLOW_LINK_MS),
    ):
        slow = []
        for name, answer in evidence.answers():
            found = answer["network"].get("api", {})
            if least <= found.get("ms", 0) < most:
                slow.append((name, f"a round trip to the API takes {found['ms']:.0f} ms"))
        yield from together(level, slow, lambda _hosts: "check the WAN link: load, loss, route")
    for name, answer in evidence.answers():
        error = answer["network"].get("api", {}).get("error")
        if error:
            refused.append(
                (name, f"the API at {site.api_address}:{site.api_port} cannot be reached: {error}")
            )
    yield from together(
        PROBLEM, refused, lambda _hosts: "check the load balancer, the link and the firewall; ironspan status"
    )


def _runs(answer: Content, unit: str) -> bool:
    return bool(answer["units"].get(unit, {}).get("active") == "active")
