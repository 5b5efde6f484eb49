# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What pods may reach outside the cluster: entries that somebody answers for, and that open no more."""

from __future__ import annotations

import fnmatch
import ipaddress
import re
import typing as t
from collections.abc import Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks import egress_names
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.networks import (
    address_of,
    network_of,
    of_cluster,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import egress
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.day_zero import MIGRATION
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.entry import Entry, entries
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.reach import parsed_ipv4, unusable
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.values import Rejected

ALLOW = "egress_allow"
BRIDGE = "cni0"
"""Flannel's, on every node."""
_INTERFACE = re.compile(r"[A-Za-z0-9_.-]{1,15}|[A-Za-z0-9_.-]{1,14}\*")
"""Names of interfaces have 15 characters (IFNAMSIZ); a star at the end stands for any rest."""


def check_allowed(draft: Draft) -> None:
    """Every entry is complete, ends, and opens nothing of the cluster; names resolve when they are used."""
    for entry in entries(draft, ALLOW):
        for name in ("owner", "reason"):
            _try(entry, name, egress.one_line)
        ended = _try(entry, "expires", egress.has_ended)
        _check_ports(entry)
        if entry.value.get("through") == egress.PROXY:
            continue
        destination = entry.text("destination")
        is_name = bool(re.search(r"[a-z]", destination, re.IGNORECASE)) and ":" not in destination
        # A name costs a question to a resolver, and what is not in force may have ceased to exist.
        if is_name and "*" not in destination and (ended or not draft.site_value("egress_enabled")):
            continue
        for network in _try(entry, "destination", egress.networks_of) or ():
            _check_network(entry, network)


def _try(entry: Entry, name: str, read: t.Callable[[str], t.Any]) -> t.Any:
    value = entry.value.get(name)
    if not isinstance(value, str):  # missing, or of another type: that is reported by itself
        return None
    try:
        return read(value)
    except Rejected as rejected:
        entry.problem(name, rejected.message, rejected.remedy)
        return None


def _check_ports(entry: Entry) -> None:
    ports = entry.value.get("ports")
    if not isinstance(ports, list):
        return
    try:
        ranges = egress.port_ranges(ports)
    except Rejected as rejected:
        entry.problem("ports", rejected.message, rejected.remedy)
        return
    if not ranges:
        entry.problem("ports", "is empty", "write for example [443]")
    elif all(first == last and first in egress.RESOLVER_PORTS for first, last in ranges):
        entry.problem(
            "ports", "are a resolver's, which no entry opens", "write the resolver into egress_resolvers"
        )


def _check_network(entry: Entry, network: ipaddress.IPv4Network) -> None:
    draft = entry.draft
    shown = (
        f"{entry.text('destination')} ({network})" if entry.text("destination") != str(network) else network
    )
    if network.is_loopback or network.is_multicast or network.is_unspecified:
        entry.problem("destination", f"{shown} is no network that packets are sent to", "write another one")
    for metadata in egress.METADATA:
        if network.subnet_of(ipaddress.IPv4Network(metadata)):
            entry.problem(
                "destination",
                f"{shown} is where a cloud hands out credentials, which is always closed",
                "remove the entry",
            )
    for variable in ("site_pod_cidr", "site_service_cidr", MIGRATION):
        own = network_of(draft, variable)
        if own is not None and network.overlaps(own):
            entry.problem(
                "destination",
                f"{shown} overlaps {variable} ({own})",
                "write networks outside the cluster only",
            )
    for host in draft.hosts.values():
        address = address_of(host)
        if isinstance(address, ipaddress.IPv4Address) and address in network:
            entry.problem(
                "destination",
                f"{shown} holds host {host.name} ({address})",
                "write narrower networks; what pods may reach on hosts says egress_node_ports",
            )
            return


def check_addresses(draft: Draft) -> None:
    """Resolvers are addresses, the hosts' networks are networks."""
    for index, text in _items(draft, "egress_resolvers"):
        if text is not None and (message := _wrong_resolver(draft, str(text))):
            _report(draft, "egress_resolvers", index, message, "write that of a resolver, such as 10.0.0.53")
    for index, text in _items(draft, "egress_node_networks"):
        try:
            egress.network_of(str(text))
        except Rejected as rejected:
            _report(draft, "egress_node_networks", index, rejected.message, rejected.remedy)


def _wrong_resolver(draft: Draft, text: str) -> str:
    """Return why no pod gets an answer there; empty where it may."""
    address = parsed_ipv4(text)
    if address is None:
        return f"{text!r} is no IPv4 address"
    # Some clouds have theirs at a link-local address.
    kind = unusable(address, bool(draft.site_value("site_lab")))
    if kind and kind != "link-local":
        return f"{text} is a {kind} address"
    return of_cluster(draft, address)


def check_node_ports(draft: Draft) -> None:
    """Ports on hosts are ports, and mean something only with the hosts' networks."""
    for index, value in _items(draft, "egress_node_ports"):
        try:
            egress.port_range(value)
        except Rejected as rejected:
            _report(draft, "egress_node_ports", index, rejected.message, rejected.remedy)
    if draft.site_value("egress_node_ports") and not draft.site_value("egress_node_networks"):
        draft.problems.add(
            draft.site_place("egress_node_ports"),
            "egress_node_networks",
            "is empty, so no host's port can be opened",
            "write the networks that the hosts' addresses lie in",
        )
    _check_hosts_in_networks(draft)


def _check_hosts_in_networks(draft: Draft) -> None:
    """At least one host lies in the networks that hosts are said to lie in."""
    variable = "egress_node_networks"
    networks = []
    for _index, text in _items(draft, variable):
        try:
            networks.append(egress.network_of(str(text)))
        except Rejected:
            return  # reported where networks are read
    addresses = [address_of(host) for host in draft.hosts.values()]
    if networks and not any(address in network for network in networks for address in addresses if address):
        remedy = "write the networks that the hosts' addresses lie in"
        draft.problems.add(draft.site_place(variable), variable, "holds the address of no host", remedy)


def check_interfaces(draft: Draft) -> None:
    """Pods are known by at least one interface, and interfaces have names."""
    for variable in ("egress_pod_interfaces", "egress_overlay_interfaces"):
        for index, name in _items(draft, variable):
            if not _INTERFACE.fullmatch(str(name)):
                _report(
                    draft,
                    variable,
                    index,
                    f"{name!r} is no name of an interface",
                    "write for example cni0, or lxc* for all that begin so",
                )
    tunnel = f"flannel.{draft.site_value('flannel_vni')}"
    for index, name in _items(draft, "egress_overlay_interfaces"):
        if draft.site_value("egress_enabled") and str(name).startswith("flannel.") and not _is(name, tunnel):
            variable = "egress_overlay_interfaces"
            message = f"{name} is not flannel's interface with its flannel_vni"
            if draft.writer(variable):
                _report(draft, variable, index, message, f"write [{tunnel}]")
            else:
                remedy = f"write {variable}: [{tunnel}]"
                draft.problems.add(draft.site_place("flannel_vni"), variable, message, remedy)
    if draft.site_value("egress_enabled") and draft.site_value("site_cni") == "flannel":
        _check_flannel(draft, tunnel)
    if draft.site_value("egress_pod_interfaces") == []:
        draft.problems.add(
            draft.site_place("egress_pod_interfaces"),
            "egress_pod_interfaces",
            "is empty, so pods could use any source address",
            "write the interface that pods' packets come in by, cni0 with flannel",
        )


def _is(pattern: object, name: str) -> bool:
    return fnmatch.fnmatchcase(name, str(pattern))


def _check_flannel(draft: Draft, tunnel: str) -> None:
    """Flannel's own interfaces are among those of pods, and of other hosts' pods."""
    for variable, needed, consequence in (
        ("egress_pod_interfaces", BRIDGE, "by which pods' packets come in: the table would see none"),
        ("egress_overlay_interfaces", tunnel, "by which packets leave for pods of other hosts"),
    ):
        value = draft.site_value(variable)
        is_list = isinstance(value, list) and all(_INTERFACE.fullmatch(str(name)) for name in value)
        if not is_list or not draft.writer(variable):
            continue
        # Names of another tunnel, and a list of pods' interfaces that is empty, are reported by themselves.
        is_tunnel = variable == "egress_overlay_interfaces"
        is_said = not value if not is_tunnel else any(str(name).startswith("flannel.") for name in value)
        if not is_said and not any(_is(name, needed) for name in value):
            message = f"lacks {needed}, {consequence}"
            draft.problems.add(draft.site_place(variable), variable, message, f"write [{needed}]")


def _items(draft: Draft, variable: str) -> Iterator[tuple[int, t.Any]]:
    value = draft.site_value(variable)
    return enumerate(value if isinstance(value, list) else ())


def _report(draft: Draft, variable: str, index: int, message: str, remedy: str) -> None:
    host = draft.writer(variable)
    place = draft.inner_place(host, variable, index) if host else draft.home()
    draft.problems.add(place, f"{variable}[{index}]", message, remedy)


CHECKS = (check_allowed, check_addresses, check_node_ports, check_interfaces, *egress_names.CHECKS)
