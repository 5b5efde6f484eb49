# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Networks that must not overlap and must be large enough, and addresses that must be one host's own.

The figures are kubeadm's (cmd/kubeadm/app/constants/constants.go in Kubernetes 1.36): a service subnet has at
least 10 addresses and at most 20 bits; the pod subnet may be at most 16 bits wider than a node's part of it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.day_zero import MIGRATION
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.formats import is_taken_for_address
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Place, named
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.reach import parsed, unusable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
WIDEST_SERVICE_PREFIX = 12
NARROWEST_SERVICE_PREFIX = 28
MOST_POD_SUBNET_BITS = 16

_PRIVATE = tuple(
    ipaddress.IPv4Network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
)
"""What a cluster's own networks may be of. Python calls more private: loopback, link-local, reserved."""


_TARGET = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(%[A-Za-z0-9_.-]+)?")


def of_cluster(draft: Draft, address: ipaddress.IPv4Address) -> str:
    """Return what is wrong with an address that only pods or services have, an empty text with any other."""
    for variable in ("site_pod_cidr", "site_service_cidr"):
        network = network_of(draft, variable)
        if network is not None and address in network:
            return f"{address} lies in {variable} ({network})"
    return ""


def out_of_reach(draft: Draft, address: Address | None, lab: bool) -> str:
    """Return why nobody outside of the cluster reaches an address; empty where somebody may, and for a name.

    Args:
        draft: the site.
        address: where a URL leads, None for a name.
        lab: whether loopback addresses lead somewhere.
    """
    if address and (kind := unusable(address, lab)):
        return f"{address} is {kind}"
    return of_cluster(draft, address) if isinstance(address, ipaddress.IPv4Address) else ""


def network_of(draft: Draft, variable: str, report: bool = False) -> ipaddress.IPv4Network | None:
    """Return a site-wide network, None (reported if asked) when it is not an IPv4 network."""
    text = draft.site_value(variable)
    if not isinstance(text, str):
        return None
    place = draft.site_place(variable)
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        if report:
            _report_network(draft, place, variable, text)
        return None
    if not isinstance(network, ipaddress.IPv4Network):
        if report:
            draft.problems.add(
                place,
                variable,
                f"{text} is IPv6",
                f"write an IPv4 network here, and this one as {variable}_ipv6"
                if f"{variable}_ipv6" in draft.specification.options
                else "write an IPv4 network",
            )
        return None
    if report and str(network) != text:
        # Programs on hosts are given what is written, and each knows other notations.
        draft.problems.add(place, variable, f"{text} is not in CIDR notation", f"write {network}")
    return network


def _report_network(draft: Draft, place: Place, variable: str, text: str) -> None:
    if "," in text:
        message = f"{text!r} names two networks"
        draft.problems.add(
            place, variable, message, f"write the IPv4 network here, the other as {variable}_ipv6"
        )
        return
    try:
        better = str(ipaddress.ip_network(text, strict=False))
        draft.problems.add(place, variable, f"{text} has bits set behind its prefix", f"write {better}")
    except ValueError:
        example = draft.specification.defaults.get(variable)
        draft.problems.add(
            place, variable, f"{text!r} is not a network in CIDR notation", f"write for example {example}"
        )


def owners_of(draft: Draft) -> dict[str, HostDraft]:
    """Return the hosts by their addresses; those without one are left out."""
    return {str(at): host for host in draft.hosts.values() if (at := address_of(host)) is not None}


def address_of(host: HostDraft) -> Address | None:
    """Return the address of a host, None when what is written is not one."""
    text = host.values.get("site_address") or host.values.get("ansible_host") or host.name
    return parsed(str(text))


def address_variable(host: HostDraft) -> str:
    """Return the variable that says a host's address."""
    return "site_address" if host.values.get("site_address") else "ansible_host"


def check_cidrs(draft: Draft) -> None:
    """Pod and service networks: valid, apart from each other, large enough."""
    pods = network_of(draft, "site_pod_cidr", report=True)
    services = network_of(draft, "site_service_cidr", report=True)
    if services is not None:
        _check_service_size(draft, services)
    if pods is not None and services is not None and pods.overlaps(services):
        draft.problems.add(
            draft.site_place("site_service_cidr"),
            "site_service_cidr",
            f"{services} overlaps the pod network {pods}",
            "write a network outside it, for example 10.96.0.0/16 beside 10.244.0.0/16",
        )
    for name, network in (("site_pod_cidr", pods), ("site_service_cidr", services)):
        if network is not None and not any(network.subnet_of(private) for private in _PRIVATE):
            draft.problems.add(
                draft.site_place(name),
                name,
                f"{network} is not a private network (RFC 1918, RFC 6598)",
                f"write for example {draft.specification.defaults.get(name)}",
            )
    mask = draft.site_value("site_node_cidr_mask")
    if pods is not None and isinstance(mask, int):
        _check_pod_size(draft, pods, mask)


def _check_service_size(draft: Draft, services: ipaddress.IPv4Network) -> None:
    if WIDEST_SERVICE_PREFIX <= services.prefixlen <= NARROWEST_SERVICE_PREFIX:
        return
    draft.problems.add(
        draft.site_place("site_service_cidr"),
        "site_service_cidr",
        f"{services} is outside /{WIDEST_SERVICE_PREFIX} to /{NARROWEST_SERVICE_PREFIX}, as kubeadm wants it",
        f"write for example {services.network_address}/16",
    )


def _check_pod_size(draft: Draft, pods: ipaddress.IPv4Network, mask: int) -> None:
    place = draft.site_place("site_pod_cidr")
    bits = mask - pods.prefixlen
    kubelets = len({host.name for group in ("nodes", "control_plane") for host in draft.members(group)})
    if bits > MOST_POD_SUBNET_BITS:
        draft.problems.add(
            place,
            "site_pod_cidr",
            f"{pods} is over {MOST_POD_SUBNET_BITS} bits wider than a node's /{mask}, which kubeadm refuses",
            f"write a network of /{mask - MOST_POD_SUBNET_BITS} or smaller",
        )
    elif bits < 0 or 2**bits < kubelets:
        room = 2**bits if bits >= 0 else 0
        prefix = mask - max(kubelets - 1, 0).bit_length()
        draft.problems.add(
            place,
            "site_pod_cidr",
            f"{pods} has room for {room} nodes with a /{mask} each (site_node_cidr_mask), "
            f"the site has {kubelets}",
            f"write a network of /{prefix} or larger",
        )


def check_addresses(draft: Draft) -> None:
    """Every host has an address of its own that lies outside the cluster's networks."""
    seen: dict[str, HostDraft] = {}
    reached: dict[tuple[str, str], HostDraft] = {}
    own = {
        (str(host.values["site_address"]), _port(host)): host
        for host in draft.hosts.values()
        if host.values.get("site_address")
    }
    networks = [
        (name, network)
        for name in ("site_pod_cidr", "site_service_cidr", MIGRATION)
        if (network := network_of(draft, name)) is not None
    ]
    wrong = {(problem.path, Place(problem.file, problem.line)) for problem in draft.problems}
    for host in draft.hosts.values():
        _check_reached(draft, host, reached, own)
        _check_management(draft, host, networks)
        variable = address_variable(host)
        address = address_of(host)
        if address is None and (variable, draft.place(host, variable)) in wrong:
            continue  # of another type, or without a value
        if address is None:
            text = host.values.get("site_address") or host.values.get("ansible_host") or host.name
            draft.problems.add(
                draft.place(host, variable),
                variable if variable in host.settings else f"hosts.{host.name}.site_address",
                f"{str(text)!r} is not an IP address",
                "write site_address: with the address other hosts reach this one at"
                if _is_target(str(text)) or variable == "site_address"
                else "write the address alone, such as 10.20.0.11",
            )
            continue
        other = seen.setdefault(str(address), host)
        if other is not host:
            draft.problems.add(
                draft.place(host, variable),
                variable,
                f"{address} is the address of host {other.name} too"
                f" ({named(draft.place(other, address_variable(other)))})",
                "give every host its own",
            )
        kind = unusable(address, bool(host.values.get("site_lab")))
        if kind or address.version == 6:
            draft.problems.add(
                draft.place(host, variable),
                variable,
                f"{address} is {f'a {kind}' if kind else 'an IPv6'} address",
                "write the address other hosts reach this one at"
                if kind
                else "write the host's IPv4 address; site_address_ipv6 is for the other one",
            )
        for name, network in networks:
            if address in network:
                draft.problems.add(
                    draft.place(host, variable),
                    variable,
                    f"{address} lies in {name} ({network})",
                    f"give the host another address, or move {name}",
                )


def _port(host: HostDraft) -> str:
    return str(host.values.get("ansible_port") or 22)


def _check_reached(
    draft: Draft,
    host: HostDraft,
    reached: dict[tuple[str, str], HostDraft],
    own: Mapping[tuple[str, str], HostDraft],
) -> None:
    """Where Ansible reaches a host is no other host: none reached there too, none that has this address."""
    target = host.values.get("ansible_host")
    if not target:
        return
    at = (str(target), _port(host))
    other = reached.setdefault(at, host)
    if other is not host:
        draft.problems.add(
            draft.place(host, "ansible_host"),
            "ansible_host",
            f"{target} is where host {other.name} is reached too"
            f" ({named(draft.place(other, 'ansible_host'))})",
            "give every host its own",
        )
    elif host.values.get("site_address") and not _is_target(str(target)):
        draft.problems.add(
            draft.place(host, "ansible_host"),
            "ansible_host",
            f"{str(target)!r} is no name or address that SSH connects to",
            "write a name or an address alone; ansible_user and ansible_port say the rest",
        )
    elif host.values.get("site_address") and _is_controller(host, str(target)):
        draft.problems.add(
            draft.place(host, "ansible_host"),
            "ansible_host",
            f"{target} is the machine that Ansible runs on",
            "write where this host is reached, or the ansible_port that is forwarded to it",
        )
    elif host.values.get("site_address") and (owner := own.get(at, host)) is not host:
        draft.problems.add(
            draft.place(host, "ansible_host"),
            "ansible_host",
            f"{target} is the address of host {owner.name} ({named(draft.place(owner, 'site_address'))})",
            "write where this host is reached",
        )


def _is_controller(host: HostDraft, target: str) -> bool:
    """Tell whether SSH would end where it begins: at loopback, and no port of it leads to another machine.

    With options of SSH, or another program in its place, it may begin elsewhere; a lab is one machine.
    """
    address = parsed(target)
    own = address.is_loopback if address else target in ("localhost", "localhost.localdomain")
    ways = any("ssh" in name and name.endswith(("_args", "_executable")) for name in host.settings)
    return own and _port(host) == "22" and not ways and not host.values.get("site_lab")


def _is_target(text: str) -> bool:
    """Tell whether SSH can connect there: a name, also one of ssh_config(5), or an address of one machine."""
    address = parsed(text)
    if address is None:
        return _TARGET.fullmatch(text) is not None and not is_taken_for_address(text)
    return unusable(address, lab=True) in ("", "link-local")


def _check_management(
    draft: Draft, host: HostDraft, networks: list[tuple[str, ipaddress.IPv4Network]]
) -> None:
    """Where Ansible reaches a host, when that is another address, is outside the cluster's networks too."""
    if (
        not host.values.get("site_address")
        or (address := parsed(str(host.values.get("ansible_host")))) is None
    ):
        return
    for name, network in networks:
        if address in network:
            draft.problems.add(
                draft.place(host, "ansible_host"),
                "ansible_host",
                f"{address} lies in {name} ({network})",
                f"reach the host at another address, or move {name}",
            )


CHECKS = (check_cidrs, check_addresses)
