# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Where the API and the mirror answer."""

from __future__ import annotations

import functools
import ipaddress
import re
from urllib.parse import urlsplit

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.names import is_subdomain
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.networks import (
    address_of,
    of_cluster,
    out_of_reach,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.formats import is_taken_for_address
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.judges import is_address
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.reach import (
    parsed,
    parsed_ipv4,
    unusable,
)

API_ADDRESS, EXTRA_NAMES = "site_api_address", "control_plane_extra_names"
HAVE_API = {"control_plane", "haproxy"}
"""Groups whose hosts may have the address of the API, beside their own."""


def split_endpoint(endpoint: str) -> tuple[str, int] | None:
    """Return host and port of ``host:port``, None when it is something else."""
    host, colon, port = endpoint.rpartition(":")
    host = host.strip("[]") if host.startswith("[") else host
    # No zero in front: programs that are given the text itself read it as they like.
    if not colon or not (port.isascii() and port.isdigit()) or port != str(int(port)):
        return None
    if not 1 <= int(port) <= 65_535:
        return None
    if not is_address(host) and (not is_subdomain(host) or is_taken_for_address(host)):
        return None
    return host, int(port)


def check_endpoint(draft: Draft) -> None:
    """The API endpoint is a name or address with a port; haproxy listens there, beside the API server."""
    endpoint = draft.site_value("site_api_endpoint")
    if not isinstance(endpoint, str):
        return
    place = draft.site_place("site_api_endpoint")
    parts = split_endpoint(endpoint)
    if parts is None:
        draft.problems.add(
            place,
            "site_api_endpoint",
            f"{endpoint!r} is not NAME:PORT",
            "write for example api.example.com:6443, without https://",
        )
        return
    if is_address(parts[0]) and (
        kind := unusable(ipaddress.ip_address(parts[0]), bool(draft.site_value("site_lab")))
    ):
        draft.problems.add(
            place, "site_api_endpoint", f"{parts[0]} is a {kind} address", "write that of the load balancer"
        )
    name = parts[0].rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        draft.problems.add(
            place,
            "site_api_endpoint",
            f"{name} is another host on each host",
            "write a name that all hosts resolve to the load balancer",
        )
    domain = str(draft.site_value("site_cluster_domain"))
    if name == domain or name.endswith(f".{domain}"):
        draft.problems.add(
            place,
            "site_api_endpoint",
            f"{name} is a name in {domain} (site_cluster_domain), which the cluster's own DNS answers for",
            "write a name outside of it, or another site_cluster_domain such as cluster.local",
        )
    named = draft.hosts.get(name)
    if named and not HAVE_API & set(named.groups):
        draft.problems.add(
            place,
            "site_api_endpoint",
            f"{name} is a host of the site without an API server or a load balancer",
            "write the name of the load balancer",
        )
    elif named and (given := draft.site_value("site_api_address")) and given != str(address_of(named)):
        draft.problems.add(
            place,
            "site_api_endpoint",
            f"{name} is a host of the site, at {address_of(named)} and not at {given} (site_api_address)",
            "write the name of the load balancer, or the address of that host",
        )


def check_api_address(draft: Draft) -> None:
    """The address behind the endpoint's name: haproxy's, or a load balancer's that is no host's."""
    endpoint = draft.site_value("site_api_endpoint")
    parts = split_endpoint(endpoint) if isinstance(endpoint, str) else None
    address = draft.site_value(API_ADDRESS)
    place = draft.site_place(API_ADDRESS)
    if not address:
        if any(problem.path == API_ADDRESS for problem in draft.problems):
            return  # of another type, or without a value
        if parts is not None and is_address(parts[0]):
            _check_who_answers(draft, "site_api_endpoint", parts[0])
        elif parts is not None and len(draft.members("haproxy")) != 1:
            draft.problems.add(
                place,
                API_ADDRESS,
                f"is not set, and nothing says which address {parts[0]} has",
                "write the address of the load balancer",
            )
        return
    if not is_address(str(address)):
        draft.problems.add(
            place, API_ADDRESS, f"{address!r} is not an IP address", "write for example 10.0.0.10"
        )
        return
    # One of loopback is what a site on one machine has (site_lab); anywhere else each host would ask itself.
    kind = unusable(ipaddress.ip_address(str(address)), bool(draft.site_value("site_lab")))
    if kind:
        draft.problems.add(
            place, API_ADDRESS, f"{address} is a {kind} address", "write the address of the load balancer"
        )
        return
    if parts is not None and is_address(parts[0]) and parts[0] != address:
        draft.problems.add(
            place,
            API_ADDRESS,
            f"{address} is not the address in site_api_endpoint ({parts[0]})",
            "write the same address in both",
        )
    _check_who_answers(draft, API_ADDRESS, str(address))


def _check_who_answers(draft: Draft, variable: str, address: str) -> None:
    """Check that nobody else is at the address of the API, and that hosts reach it.

    Args:
        draft: the site.
        variable: the one that says the address.
        address: an address.
    """
    place = draft.site_place(variable)
    if ipaddress.ip_address(address).version == 6 and not draft.site_value("site_pod_cidr_ipv6"):
        message = f"{address} is an IPv6 address, and the site's hosts have IPv4 addresses"
        draft.problems.add(place, variable, message, "write the IPv4 address of the load balancer")
    balancers = draft.members("haproxy")
    for host in (host for host in draft.hosts.values() if str(address_of(host)) == address):
        if balancers and "haproxy" not in host.groups:
            names = ", ".join(str(address_of(balancer)) for balancer in balancers)
            draft.problems.add(
                place,
                variable,
                f"{address} is the address of host {host.name}, which is not in the group haproxy",
                f"write the address of a haproxy host ({names}) or one that moves between them",
            )
        elif not balancers and "control_plane" not in host.groups:
            draft.problems.add(
                place,
                variable,
                f"{address} is the address of host {host.name}, which has no API server",
                "write the address of the load balancer, or of a control plane host",
            )
    for host in (host for host in draft.hosts.values() if _is_reached_at(host, address)):
        draft.problems.add(
            place,
            variable,
            f"{address} is where Ansible reaches host {host.name}, which has no API server",
            "write the address of the load balancer",
        )
    ipv4 = parsed_ipv4(address)
    if ipv4 and (message := of_cluster(draft, ipv4)):
        draft.problems.add(place, variable, message, "write another address")


def _is_reached_at(host: HostDraft, address: str) -> bool:
    """Tell whether Ansible reaches a host without an API server there, at SSH's own port of that machine."""
    values = host.values
    return (
        str(values.get("ansible_host")) == address != str(address_of(host))
        and int(values.get("ansible_port") or 22) == 22
        and not HAVE_API & set(host.groups)
    )


def check_mirrors(draft: Draft) -> None:
    """The mirror is a plain http or https URL that hosts reach."""
    has_local = any(_is_local(host) for host in draft.hosts.values())
    for host in draft.hosts.values():
        url = host.values.get("site_mirror_url")
        if not isinstance(url, str) or not url:
            continue
        problem = (
            mirror_problem(url)
            or _unreachable_mirror(draft, url, has_local)
            or _other_than_mirror(draft, url)
        )
        if problem:
            draft.problems.add(
                draft.place(host, "site_mirror_url"),
                "site_mirror_url",
                f"{_without_password(url)!r} {problem}",
                "write for example http://mirror.example.com:8080",
            )


def _is_local(host: HostDraft) -> bool:
    """Tell whether a host is the controller itself, or behind a tunnel of it, which may lead back as well."""
    reached = parsed(str(host.values.get("ansible_host") or ""))
    is_here = bool(reached and reached.is_loopback) or host.values.get("ansible_connection") == "local"
    return is_here or bool(host.values.get("site_lab"))


def _unreachable_mirror(draft: Draft, url: str, has_local: bool) -> str:
    """Return why no host reaches a mirror of this address, an empty text when they may."""
    name = urlsplit(url).hostname or ""
    if name == "localhost" and not has_local:
        return "is another machine to each host: itself"
    fault = out_of_reach(draft, parsed(name), has_local)
    return fault and f"leads nowhere: {fault}"


def _other_than_mirror(draft: Draft, url: str) -> str:
    """Return what else answers at the address of a mirror, or who alone knows its name; or nothing."""
    parts = urlsplit(url)
    name, port = parts.hostname or "", parts.port or {"http": 80, "https": 443}[parts.scheme]
    endpoint = draft.site_value("site_api_endpoint")
    if isinstance(endpoint, str) and split_endpoint(endpoint) == (name, port):
        return "is where the API answers (site_api_endpoint)"
    domain = str(draft.site_value("site_cluster_domain"))
    if name == domain or name.endswith(f".{domain}"):
        return f"has a name in {domain} (site_cluster_domain), which only pods can resolve"
    return ""


@functools.lru_cache(maxsize=64)
def mirror_problem(url: str) -> str:
    """Return what is wrong with a mirror's URL, an empty text when nothing is."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        return f"is not a URL ({error})"
    if parts.scheme not in ("http", "https"):
        return "does not begin with http:// or https://"
    if not host or not (is_address(host) or is_subdomain(host)):
        return "has no valid host name"
    if parts.username or parts.password:
        return "carries credentials, which would end up in files on every host"
    if parts.query or parts.fragment:
        return "has a query or fragment"
    if port == 0:
        return "has port 0, which nobody answers at"
    if url.endswith("/"):
        return "ends with a slash"
    if parts.path.startswith("//"):
        return "has an address behind the name of the host, as in http://http://"
    if not re.fullmatch(r"[A-Za-z0-9._~/%:+-]*", parts.path) or ".." in parts.path.split("/"):
        return "has a path with characters that are not plain, or with '..'"
    return ""


def _without_password(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    return f"{scheme}{separator}***@{rest.rpartition('@')[2]}" if "@" in rest else url


def check_extra_names(draft: Draft) -> None:
    """Names in certificates are those that kubeadm takes, and addresses those that something answers at."""
    host, names = draft.writer(EXTRA_NAMES), draft.site_value(EXTRA_NAMES)
    for index, name in enumerate(names if isinstance(names, list) and host else ()):
        if name is None:
            continue  # of another type, or of no grammar
        address, text = parsed(str(name)), str(name)
        # Loopback addresses are those of a tunnel to an API server.
        kind = unusable(address, True) if address and not address.is_loopback else ""
        found: tuple[str, str] | None = None
        if kind:
            found = (
                f"{text} is {kind}, and nothing answers there",
                "write an address of the API, or take it out",
            )
        elif address is None and text != text.lower():
            # cmd/kubeadm/app/apis/kubeadm/validation, ValidateCertSANs
            found = f"{text} has capitals, and kubeadm takes none", f"write {text.lower()}"
        if found and host:
            draft.problems.add(draft.inner_place(host, EXTRA_NAMES, index), f"{EXTRA_NAMES}[{index}]", *found)


CHECKS = (check_endpoint, check_api_address, check_mirrors, check_extra_names)
