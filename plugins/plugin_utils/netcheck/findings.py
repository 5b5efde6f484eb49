# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is wrong with the network, from what hosts answered."""

from __future__ import annotations

import collections
import functools
import ipaddress
from collections.abc import Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.findings import (
    NOTICE,
    PROBLEM,
    Evidence,
    Finding,
    apply_command,
    together,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.network_checks import SLOW_LINK_MS
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netcheck.questions import VXLAN_BYTES

LOSS_NOTICE, LOSS_PROBLEM = 0.01, 0.1
"""TCP's throughput falls with the square root of the loss (Mathis et al., 1997); a tenth hardly moves any."""
SLOW_NAMES_MS = 100.0
FULL_NOTICE, FULL_PROBLEM = 0.5, 0.8
TUNNELS = ("flannel.",)
POD_INTERFACES = ("cni0", "flannel", "lxc", "cilium")


def loss_and_latency(evidence: Evidence) -> Iterator[Finding]:
    """Echoes that did not come back, and slow ones."""
    silent: list[tuple[str, str]] = []
    lossy: dict[str, list[tuple[str, str]]] = {PROBLEM: [], NOTICE: []}
    slow: list[tuple[str, str]] = []
    for name, answer in evidence.answers():
        for path in answer["network"].get("paths") or ():
            sent, ms = path["sent"], path["ms"]
            if path.get("error") or (sent and not ms):
                silent.append((name, f"{path['peer']} does not answer{_because(path.get('error'))}"))
                continue
            loss = 1 - len(ms) / sent if sent else 0
            if loss > LOSS_NOTICE:
                level = PROBLEM if loss > LOSS_PROBLEM else NOTICE
                lossy[level].append((name, f"{loss:.0%} of {sent} echoes to {path['peer']} are lost"))
            if ms and min(ms) > SLOW_LINK_MS:
                slow.append((name, f"the way to {path['peer']} and back takes {min(ms):.0f} ms"))
    yield from together(PROBLEM, silent, lambda _hosts: "check whether it runs, the route and the firewall")
    for level, found in lossy.items():
        yield from together(level, found, lambda _hosts: "check the link between them: load, errors, duplex")
    yield from together(NOTICE, slow, lambda _hosts: "check the WAN link: load and route")


def _because(error: object) -> str:
    return f": {error}" if error else ""


def pod_packets(evidence: Evidence) -> Iterator[Finding]:
    """Pods must send packets that still fit when they are wrapped for the tunnel."""
    wanted = evidence.site.wan_mtu - VXLAN_BYTES
    found = [
        (name, f"pods may send {size} bytes ({interface}), and {wanted} fit through the tunnel")
        for name, answer in evidence.answers()
        for interface, size in answer["network"].get("here", {}).get("mtu", {}).items()
        # Not the bridge: one without pods says 1500, and pods have what the tunnel has.
        if interface.startswith(TUNNELS) and size > wanted
    ]
    yield from together(
        PROBLEM, found, lambda hosts: f"{apply_command(evidence.site, hosts)}, and restart their pods"
    )
    blocked = [
        (
            name,
            f"the tunnel to {path['peer']} lets {path['largest']} bytes pass, {path['wanted']} are meant to"
            if path["largest"]
            else f"nothing comes back through the tunnel to {path['peer']}",
        )
        for name, answer in evidence.answers()
        for path in answer["network"].get("pods") or ()
        if path.get("largest", path["wanted"]) < path["wanted"]
    ]
    yield from together(
        PROBLEM,
        blocked,
        lambda _hosts: "let UDP of the tunnel (flannel_port) pass between all nodes, in this size",
    )


def names(evidence: Evidence) -> Iterator[Finding]:
    """Caches on nodes that do not answer, and answers that take long."""
    dead = []
    slow = []
    for name, answer in evidence.answers():
        network = answer["network"]
        for asked in network.get("names") or ():
            if asked.get("error"):
                dead.append((name, f"its cache for names gives {asked['error']}"))
        for asked in (*(network.get("names") or ()), network.get("dns") or {}):
            if asked.get("ms", 0) > SLOW_NAMES_MS:
                slow.append((name, f"a name takes {asked['ms']:.0f} ms"))
    yield from together(PROBLEM, dead, lambda _hosts: "systemctl status ironspan-dns on them; docs/dns.md")
    yield from together(
        NOTICE, slow, lambda _hosts: "turn dns_node_cache on, or dns_managed for more servers"
    )


def asymmetric(evidence: Evidence) -> Iterator[Finding]:
    """Packets that go one way and come back another, or from another address than the inventory's."""
    left: dict[tuple[str, str], int] = {}
    found = []
    for name, answer in evidence.answers():
        for path in answer["network"].get("paths") or ():
            if "ttl" in path:
                left[name, path["peer"]] = path["ttl"]
            address = evidence.site.hosts[name].address
            if path.get("source", address) != address:
                what = f"it sends to {path['peer']} from {path['source']}, others reach it at {address}"
                found.append((name, what))
    # An answer's hops are those of the way back, so each host of a pair sees one direction.
    for (here, there), hops in sorted(left.items()):
        back = left.get((there, here), hops)
        if here < there and back != hops:
            found.append(
                (here, f"packets from {there} take {abs(hops - back)} hops more or less than those to it")
            )
    yield from together(
        NOTICE, found, lambda _hosts: "compare the routes of both sides: ip route get ADDRESS"
    )


def duplicates(evidence: Evidence) -> Iterator[Finding]:
    """Networks that are there twice: on both sides of the WAN, or as the cluster's own and another one."""
    site = evidence.site
    own = {
        name: ipaddress.ip_network(text)
        for name, text in (("site_pod_cidr", site.pod_cidr), ("site_service_cidr", site.service_cidr))
    }
    overlapping = []
    sides: dict[str, dict[str, list[str]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    for name, answer in evidence.answers():
        for route in answer["network"].get("here", {}).get("routes") or ():
            network = ipaddress.ip_network(route["network"])
            if route["interface"].startswith(POD_INTERFACES) or network.is_link_local:
                continue
            for variable, cluster in own.items():
                if network.overlaps(cluster):
                    what = f"{network} at {route['interface']} overlaps {variable} ({cluster})"
                    overlapping.append((name, what))
            if route["direct"]:
                sides[str(network)][site.hosts[name].site_group].append(name)
    yield from together(
        PROBLEM, overlapping, lambda _hosts: "take that network away; the cluster's own cannot be changed"
    )
    for text, hosts in sorted(sides.items()):
        if len(hosts) > 1:
            yield Finding(
                PROBLEM,
                f"{text} is directly connected on both sides of the WAN: one side does not reach the other's",
                "give one side another network",
                tuple(sorted(name for members in hosts.values() for name in members)),
            )


def pressure(evidence: Evidence) -> Iterator[Finding]:
    """Tables of the kernel that are nearly full: what does not fit is dropped without a word."""
    remedies = {
        "connection": "raise control_plane_conntrack_max_per_core",
        "neighbour": "raise net.ipv4.neigh.default.gc_thresh1..3 (docs/sizes.md)",
    }
    found: dict[tuple[str, str], list[tuple[str, str]]] = collections.defaultdict(list)
    for name, answer in evidence.answers():
        tables = answer["network"].get("here", {}).get("pressure", {})
        connections, neighbours = tables.get("connections"), tables.get("neighbours")
        full = [("connection", connections["count"], connections["most"])] if connections else []
        full += [("neighbour", neighbours["count"], neighbours["thresholds"][2])] if neighbours else []
        for kind, count, most in full:
            share = count / most if most else 0
            if share >= FULL_NOTICE:
                what = f"{count} of {most} entries of the {kind} table are used"
                found[PROBLEM if share >= FULL_PROBLEM else NOTICE, kind].append((name, what))
        if neighbours and neighbours["full"]:
            found[NOTICE, "neighbour"].append(
                (name, "the neighbour table was full, and packets were dropped")
            )
    for (level, kind), hosts in found.items():
        yield from together(level, hosts, functools.partial(_same, remedies[kind]))


def _same(remedy: str, _hosts: list[str]) -> str:
    return remedy
