# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Addresses that servers of racks have, and those that they are given images and firmware from."""

from __future__ import annotations

import ipaddress
import typing as t
import urllib.parse
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.bare_metal import IMAGE, NODE, RACKS
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.networks import (
    address_of,
    network_of,
    of_cluster,
    out_of_reach,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.formats import fault_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.reach import (
    parsed,
    parsed_ipv4,
    unusable,
)

URL = "site_bare_metal_firmware_url"
_OWN = ("site_pod_cidr", "site_service_cidr", "site_cni_migration_cidr", "azure_address_space")


def check_networks(draft: Draft) -> None:
    """Networks of racks, and what servers ask there, lie outside of the cluster's own and of the estate's."""
    racks, host = draft.site_value(RACKS), draft.writer(RACKS)
    for name, entry in racks.items() if isinstance(racks, Mapping) and host else ():
        text = entry.get("network") if isinstance(entry, Mapping) else None
        network = _network(text)
        if network is not None and host is not None:
            _judge_network(draft, host, name, network)
            _judge_gateway(draft, host, name, entry)
            _judge_name_servers(draft, host, name, entry)


def _network(text: object) -> ipaddress.IPv4Network | None:
    try:
        return ipaddress.IPv4Network(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _judge_network(draft: Draft, host: HostDraft, name: t.Any, network: ipaddress.IPv4Network) -> None:
    found = [
        f"{network} overlaps {variable}, which is {taken}"
        for variable in _OWN
        if (taken := network_of(draft, variable)) and network.overlaps(taken)
    ]
    if kind := unusable(network.network_address, bool(draft.site_value("site_lab"))):
        found.append(f"{network} is {kind}")
    for other in draft.members("azure"):
        address = parsed_ipv4(str(address_of(other)))
        if not found and address and address in network:
            found.append(f"{network} is no rack's: host {other.name} of the group azure has {address} in it")
    for message in found:
        place = draft.inner_place(host, RACKS, name, "network")
        draft.problems.add(place, f"{RACKS}.{name}.network", message, "write the network of the rack")


def _judge_gateway(draft: Draft, host: HostDraft, name: t.Any, entry: Mapping[str, t.Any]) -> None:
    gateway = str(entry.get("gateway") or "")
    owner = next((one for one in draft.members("nodes") if str(address_of(one)) == gateway), None)
    if owner:
        message = f"{gateway} is the address of host {owner.name}, which is a worker and no router"
        place = draft.inner_place(host, RACKS, name, "gateway")
        remedy = "write the router's address, or leave it out"
        draft.problems.add(place, f"{RACKS}.{name}.gateway", message, remedy)


def _judge_name_servers(draft: Draft, host: HostDraft, name: t.Any, entry: Mapping[str, t.Any]) -> None:
    for index, text in enumerate(entry["dns"] if isinstance(entry.get("dns"), list) else ()):
        address = parsed_ipv4(text) if isinstance(text, str) else None
        fault = of_cluster(draft, address) if address else ""
        remedy = "write a name server outside the cluster"
        message = f"{fault}, and servers are no part of the cluster yet"
        if not fault and text == entry.get("first"):
            fault = message = f"{text} is the address of the first server itself"
            remedy = "write the address of a name server"
        if fault:
            place = draft.inner_place(host, RACKS, name, "dns", index)
            draft.problems.add(place, f"{RACKS}.{name}.dns[{index}]", message, remedy)


def check_image(draft: Draft) -> None:
    """Servers, or their conductor, reach the address of their image."""
    image, host = draft.site_value(IMAGE), draft.writer(IMAGE)
    source = image.get("source") if isinstance(image, Mapping) else None
    if not isinstance(source, str) or host is None or not source.startswith(("http://", "https://")):
        return
    node = draft.site_value(NODE)
    info = node.get("driver_info") if isinstance(node, Mapping) else None
    # The conductor fetches it then, and may well have it itself.
    is_local = isinstance(info, Mapping) and info.get("image_download_source") == "local"
    if fault := _out_of_reach(draft, source, "server", is_local):
        remedy = "write the address at which servers reach it"
        draft.problems.add(draft.inner_place(host, IMAGE, "source"), f"{IMAGE}.source", fault, remedy)


def check_firmware_folder(draft: Draft) -> None:
    """BMCs are given the folder's address with a file's name behind it, and are not the machine itself."""
    text = str(draft.site_value(URL) or "")
    if fault_of(text, "url"):
        return
    parts = urllib.parse.urlsplit(text)
    message = _out_of_reach(draft, text, "BMC")
    if parts.query or parts.fragment:
        message = f"{text} is no folder: names of files are put behind it"
    if message:
        remedy = "write http://ADDRESS/FOLDER, as BMCs reach it"
        draft.problems.add(draft.site_place(URL), URL, message, remedy)


def _out_of_reach(draft: Draft, url: str, who: str, is_local: bool = False) -> str:
    """Return why nothing is fetched from a URL; empty where nothing speaks against it."""
    lab = is_local or bool(draft.site_value("site_lab"))
    try:
        name = urllib.parse.urlsplit(url).hostname or ""
    except ValueError:
        return ""  # It has been named as no address.
    address = parsed(name)
    is_itself = name == "localhost" or name.startswith("127.") or (address and address.is_loopback)
    if is_itself:
        return "" if lab else f"{url} is another machine to each {who}: itself"
    return out_of_reach(draft, address, lab)


CHECKS = (check_networks, check_image, check_firmware_folder)
