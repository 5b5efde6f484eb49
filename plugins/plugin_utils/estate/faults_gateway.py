# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Faults of the way to the racks: the gateway, and the routers that it speaks to."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.faults import Fault, Given, Judge, Path
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.model import Network
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.values import SPACE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.reach import parsed_ipv4, unusable

_GATEWAY, _RACKS = "azure_gateway", "azure_rack_networks"
_OWN_ASN = 65515
_RESERVED_ASNS = {8074, 8075, 12076, *range(65517, 65521)}
"""Azure, About BGP with VPN Gateway: numbers that it keeps."""
_NOBODYS_ASNS = {23456, *range(64496, 64512), *range(65535, 65552), 4294967295}
"""The same page, and RFC 5398, 6793, 7300: numbers that no router has."""
_EXAMPLES = (64512, 64513)
_SIZES = {
    # Azure, Gateway SKUs: those that are in several zones.
    "vpn": ("VpnGw1AZ", "VpnGw2AZ", "VpnGw3AZ", "VpnGw4AZ", "VpnGw5AZ"),
    "express_route": ("ErGw1AZ", "ErGw2AZ", "ErGw3AZ", "ErGwScale"),
}
_CIRCUIT = re.compile(r".*/providers/Microsoft\.Network/expressRouteCircuits/[^/]+", re.IGNORECASE)
_CERTIFICATE = re.compile(r"https://[^/]+/(certificates|secrets)/[A-Za-z0-9-]+(/[0-9a-f]{32})?")


def gateway(given: Given) -> Iterator[Fault]:
    """A VPN has routers, a connection a circuit, and BGP numbers that Azure takes."""
    entry = given.values[_GATEWAY]
    kind, peers, size = entry["kind"], entry["peers"], entry["size"]
    if kind == "vpn" and not peers:
        yield (_GATEWAY, "kind"), "is vpn, and no router is written", "write peers"
    if kind != "vpn" and peers:
        yield (_GATEWAY, "peers"), f"is written, and kind is {kind}", "write kind: vpn, or take them out"
    if kind == "express_route" and not entry["circuit"]:
        yield (
            (_GATEWAY, "kind"),
            "is express_route, and circuit is not written",
            "write the circuit's resource id",
        )
    if entry["circuit"] and not _CIRCUIT.fullmatch(entry["circuit"]):
        remedy = "write .../Microsoft.Network/expressRouteCircuits/NAME"
        yield (_GATEWAY, "circuit"), "is no circuit's id", remedy
    elif entry["circuit"] and kind != "express_route":
        remedy = "write kind: express_route, or take it out"
        yield (_GATEWAY, "circuit"), f"is written, and kind is {kind}", remedy
    if kind != "none" and not given.values[_RACKS]:
        yield (_RACKS,), "is empty, and there is a gateway to the racks", "write the networks of the racks"
    if size and kind == "none":
        yield (_GATEWAY, "size"), "is written, and kind is none", "write a kind, or take it out"
    elif size and size not in _SIZES[kind]:
        yield _wrong_size(size, kind)
    if entry["asn"] in _RESERVED_ASNS | _NOBODYS_ASNS:
        what = f"{entry['asn']} is a number that Azure keeps for itself"
        if entry["asn"] in _NOBODYS_ASNS:
            what = f"{entry['asn']} is a number that no router may have"
        yield (_GATEWAY, "asn"), what, "write another, or 65515"
    elif entry["asn"] != _OWN_ASN and kind != "vpn":
        what = f"is {entry['asn']}, and kind is {kind}: only a VPN has another number than {_OWN_ASN}"
        yield (_GATEWAY, "asn"), what, "write kind: vpn, or take it out"


def _wrong_size(size: str, kind: str) -> Fault:
    known = _SIZES[kind]
    if f"{size}AZ" in known:
        return (
            (_GATEWAY, "size"),
            f"{size} is in one zone only, and Azure ends such gateways",
            f"write {size}AZ",
        )
    near = nearest(size, known)
    remedy = f"write {near}" if near else f"write one of {', '.join(known)}"
    return (_GATEWAY, "size"), f"{size} is no size of a gateway of the kind {kind} in several zones", remedy


def routers(given: Given) -> Iterator[Fault]:
    """Each router is one of its own, and has what a connection is made of."""
    said: dict[tuple[str, str], int] = {}
    for index, peer in enumerate(given.values[_GATEWAY]["peers"]):
        path: Path = (_GATEWAY, "peers", index)
        for key in ("name", "address", "bgp_address"):
            other = said.setdefault((key, str(peer[key])), index)
            if other != index:
                what = f"{peer[key]} is that of {_GATEWAY}.peers[{other}] too"
                yield (*path, key), what, "write the router's own"
        yield from _numbers(given, path, peer)
        yield from _addresses(given, path, peer)
        if not _CERTIFICATE.fullmatch(peer["certificate"]):
            what = f"{peer['certificate']} is no certificate in a vault"
            yield (*path, "certificate"), what, "write https://VAULT.vault.azure.net/certificates/NAME"
        if not peer["chain"]:
            what = "is empty, and the router's certificate would be trusted by nobody"
            yield (*path, "chain"), what, "write the certificates of its authorities"


def _numbers(given: Given, path: Path, peer: Mapping[str, t.Any]) -> Iterator[Fault]:
    asn, own = peer["asn"], given.values[_GATEWAY]["asn"]
    example = next(number for number in _EXAMPLES if number != own)
    if asn in _RESERVED_ASNS or asn in (own, _OWN_ASN):
        yield (*path, "asn"), f"{asn} is Azure's own number", f"write the router's, for example {example}"
    elif asn in _NOBODYS_ASNS:
        what = f"{asn} is a number that no router may have"
        yield (*path, "asn"), what, f"write the router's, for example {example}"


def _addresses(given: Given, path: Path, peer: Mapping[str, t.Any]) -> Iterator[Fault]:
    public, bgp = str(peer["address"]), str(peer["bgp_address"])
    found = parsed_ipv4(public)
    if found is None or not found.is_global:
        yield (
            (*path, "address"),
            f"{public} is no public IPv4 address",
            "write where Azure reaches the router",
        )
    inside = parsed_ipv4(bgp)
    networks = {name: given.values.get(name) for name in (SPACE, "site_pod_cidr", "site_service_cidr")}
    others = {address: name for name, (address, _groups) in given.hosts.items()}
    remedy = "write the router's own"
    # Azure and routers speak BGP from link-local addresses too.
    kind = unusable(inside, lab=False) if inside and not inside.is_link_local else ""
    if inside is None or kind or any(inside in Network(text) for text in networks.values() if text):
        yield (*path, "bgp_address"), f"{bgp} is no address of the racks", remedy
    elif bgp == public:
        what = f"{bgp} is the router's public address, and it speaks BGP inside of the tunnel"
        yield (*path, "bgp_address"), what, remedy
    elif bgp in others:
        yield (*path, "bgp_address"), f"{bgp} is the address of host {others[bgp]}", remedy


JUDGES: tuple[Judge, ...] = (gateway, routers)
