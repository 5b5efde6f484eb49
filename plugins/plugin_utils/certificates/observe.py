# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Puts together what is known of every host: its own answer, and what its servers show."""

from __future__ import annotations

import concurrent.futures
import contextlib
import socket
import ssl
import typing as t
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.certificates import found
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.certificates.gate import SERVED, Observed
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Host, Site

PARALLEL = 8
TIMEOUT_S = 5
_PORTS = (("etcd", "etcd", "etcd_client_port"), ("control_plane", "kubernetes", "control_plane_port"))


def observe(
    site: Site, authorities: found.Authorities, answers: Mapping[str, Mapping[str, t.Any]]
) -> dict[str, Observed | None]:
    """Return what is known of each host of the site; None for a host that did not answer.

    Args:
        site: the site.
        authorities: its authorities.
        answers: what the hosts answered.
    """
    shown = _shown(site)
    return {host.name: _of(host, authorities, answers.get(host.name), shown) for host in site.hosts.values()}


def _of(
    host: Host,
    authorities: found.Authorities,
    answer: Mapping[str, t.Any] | None,
    shown: Mapping[tuple[str, str], str],
) -> Observed | None:
    if answer is None:
        return None
    certificates = found.of_host(host.name, answer["certificates"], authorities)
    for (name, authority), pem in shown.items():
        if name == host.name and pem:
            entry = {"path": SERVED[authority], "field": "", "pem": pem}
            certificates += found.of_host(name, [entry], authorities)
    return Observed(
        host.groups, certificates, answer["written"], answer["started"], str(answer["public_keys"])
    )


def _shown(site: Site) -> dict[tuple[str, str], str]:
    """Return the certificate that each server shows, PEM; "" when it shows none."""
    servers = {
        (host.name, authority): (host.address, int(host.variables[port]))
        for group, authority, port in _PORTS
        for host in site.group(group)
    }
    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
        return dict(zip(servers, pool.map(_shown_at, servers.values()), strict=True))


def _shown_at(address: tuple[str, int]) -> str:
    # Looked at, not trusted: nothing is sent to this server.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        contextlib.suppress(OSError),
        socket.create_connection(address, TIMEOUT_S) as connection,
        context.wrap_socket(connection) as tls,
    ):
        der = tls.getpeercert(binary_form=True)
        return ssl.DER_cert_to_PEM_cert(der) if der else ""
    return ""
