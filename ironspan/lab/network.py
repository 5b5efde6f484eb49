# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Bridges, routers and the wires between them.

    hosts ── bridge isa<i> ── router islab<i>-a ══ WAN process ══ router islab<i>-r ── bridge isr<i> ── hosts

The bridges and the machine's own address .1 on each are in the root namespace, where mirror and name
server listen. The routers are namespaces of their own, so the way between the sites is the WAN only:
the root namespace neither forwards between the bridges nor is anyone's gateway.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from ironspan.lab.commands import attempt, run
from ironspan.lab.errors import LabError
from ironspan.lab.layout import LABS_PER_MACHINE, Layout, Site
from ironspan.lab.state import Resource

#: The router's two ends; the names are private to its namespace.
LAN, WAN = "lan0", "wan0"
#: Where `ip netns` keeps its namespaces.
_FOLDER = Path("/run/netns")


def resources(layout: Layout) -> list[Resource]:
    """What `ensure` makes, in order."""
    found = [Resource("nft_table", layout.firewall_table)]
    for site in layout.sites:
        found += [
            Resource("namespace", site.namespace),
            Resource("link", site.bridge),
            Resource("link", site.router_port),
        ]
    return found


def firewall_rules(layout: Layout) -> str:
    """Rules that keep the root namespace from routing out of either bridge, whatever ip_forward says.

    Frames bridged within one site can pass the forward hook too (br_netfilter): those stay on their bridge
    and are let through.
    """
    rules = "".join(
        f'  iifname "{site.bridge}" oifname != "{site.bridge}" drop\n'
        f'  oifname "{site.bridge}" iifname != "{site.bridge}" drop\n'
        for site in layout.sites
    )
    table = f"table inet {layout.firewall_table}"
    return (
        f"{table} {{}}\ndelete {table}\n{table} {{\n chain forward {{\n"
        f"  type filter hook forward priority -10; policy accept;\n{rules} }}\n}}\n"
    )


def ensure(layout: Layout, wan_mtu: int) -> None:
    """Make whatever is missing of the lab's network; a second call changes nothing."""
    _load_bridge_filter()
    run(["nft", "-f", "-"], stdin=firewall_rules(layout))
    namespaces = _namespaces()
    links = devices()
    for site in layout.sites:
        if site.namespace not in namespaces:
            _add_namespace(site.namespace)
        # A router that was made only in part is made again from nothing: simpler than to fix.
        if site.router_port in links and not _router_complete(site):
            run(["ip", "link", "delete", site.router_port])
            links.discard(site.router_port)
        _bridge(site, links)
        if site.router_port not in links:
            _router(layout, site, wan_mtu)


def _add_namespace(name: str) -> None:
    """Make a namespace; once more if another lab, which went, took the folder away in the middle of it."""
    if attempt(["ip", "netns", "add", name]).returncode != 0:
        run(["ip", "netns", "add", name])


def _load_bridge_filter() -> None:
    """Load br_netfilter, whose settings Kubernetes hosts expect and which no container can load.

    Loading it also switches it on for the machine's own bridges: that is switched off again at once.
    """
    settings = Path("/proc/sys/net/bridge")
    if settings.is_dir() or attempt(["modprobe", "br_netfilter"]).returncode != 0:
        return
    for name in ("bridge-nf-call-iptables", "bridge-nf-call-ip6tables", "bridge-nf-call-arptables"):
        (settings / name).write_text("0\n")


def _bridge(site: Site, links: set[str]) -> None:
    if site.bridge not in links:
        run(["ip", "link", "add", site.bridge, "type", "bridge", "forward_delay", "0", "stp_state", "0"])
    # Neighbour discovery of a network nobody uses would be noise on the bridge.
    run(["ip", "link", "set", site.bridge, "addrgenmode", "none", "up"])
    run(["ip", "address", "replace", f"{site.controller}/24", "dev", site.bridge])


def _router(layout: Layout, site: Site, wan_mtu: int) -> None:
    inside = ["ip", "-n", site.namespace]
    attempt([*inside, "link", "delete", WAN])
    run(["ip", "link", "add", site.router_port, "type", "veth", "peer", "name", LAN, "netns", site.namespace])
    run(["ip", "link", "set", site.router_port, "master", site.bridge, "addrgenmode", "none", "up"])
    run(
        [*inside, "-batch", "-"],
        stdin=f"link set lo up\n"
        f"address add {site.router}/24 dev {LAN}\n"
        f"link set {LAN} up\n"
        f"tuntap add dev {WAN} mode tun\n"
        f"link set {WAN} mtu {wan_mtu} txqueuelen 5000 up\n"
        f"address add {site.wan_address} peer {site.wan_peer} dev {WAN}\n"
        f"route add {layout.other(site).network} via {site.wan_peer} dev {WAN}\n",
    )
    # Of this namespace only. Last, because it is what _router_complete looks for.
    run(["ip", "netns", "exec", site.namespace, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"])


def _router_complete(site: Site) -> bool:
    done = attempt(["ip", "netns", "exec", site.namespace, "cat", "/proc/sys/net/ipv4/ip_forward"])
    return done.returncode == 0 and done.stdout.strip() == "1"


def devices() -> set[str]:
    """Return the names of the devices in the root namespace."""
    return {link["ifname"] for link in _json(["ip", "-json", "link", "show"])}


def _namespaces() -> set[str]:
    try:
        return {entry.name for entry in _FOLDER.iterdir()}
    except FileNotFoundError:
        return set()  # it goes with the last one, maybe at this moment and with another lab's


def _json(command: list[str]) -> list[dict[str, Any]]:
    loaded = json.loads(run(command) or "[]")
    if not isinstance(loaded, list):
        raise LabError(f"{' '.join(command)} printed no list", exit_code=1)
    return loaded


def taken_indexes() -> set[int]:
    """Indexes no new lab can use because their devices or addresses exist on the machine already."""
    links = devices()
    taken = {
        index
        for index in range(LABS_PER_MACHINE)
        if any(site.bridge in links or site.router_port in links for site in Layout("x", index, 1, 1).sites)
    }
    for route in _json(["ip", "-json", "-4", "route", "show", "table", "all"]):
        octets = str(route.get("dst", "")).partition("/")[0].split(".")
        if octets[:2] == ["10", "98"] and len(octets) > 2:
            taken.add(int(octets[2]) // 2)
    return taken


def remove_link(name: str) -> None:
    """Delete a device of the root namespace, if it is there."""
    if name in devices() and attempt(["ip", "link", "delete", name]).returncode != 0 and name in devices():
        raise LabError(f"cannot delete the network device {name}", exit_code=1)


def remove_namespace(name: str) -> None:
    """Delete a network namespace, if it is there."""
    if name in _namespaces():
        run(["ip", "netns", "delete", name])
    # `ip netns` mounts its folder onto itself; with the last namespace that goes too.
    if _FOLDER.is_dir() and not _namespaces():
        attempt(["umount", str(_FOLDER)])  # refuses when somebody just made one
        with contextlib.suppress(OSError):
            _FOLDER.rmdir()


def remove_table(name: str) -> None:
    """Delete an nftables table of family inet, if it is there."""
    run(["nft", "-f", "-"], stdin=f"table inet {name} {{}}\ndelete table inet {name}\n")
