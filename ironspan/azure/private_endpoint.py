# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Nothing is sent to a public address: the account's name has to resolve to a private endpoint.

Checked twice. ``insist_on_private`` looks the name up and says what is missing in the DNS. ``transport``
makes the connections of the Azure SDK, and looks at the address of each one before anything is sent, so that
a DNS that changes later (a zone unlinked, a forwarder lost) stops the traffic as well.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
import typing as t
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import requests
from azure.core.pipeline.transport import RequestsTransport
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPSConnection
from urllib3.connectionpool import HTTPSConnectionPool
from urllib3.util import Retry

from ironspan.program.errors import Refused, ServiceError

PRIVATE = tuple(
    ipaddress.ip_network(text)
    for text in (
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "100.64.0.0/10",
        "fc00::/7",
        "127.0.0.0/8",
        "::1",
    )
)
"""Addresses of private networks: RFC 1918, RFC 6598, RFC 4193, and the host itself (a forwarder on it)."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A service's name, and the name that its private endpoint has in the DNS."""

    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> Endpoint:
        """Take the endpoint from a URL of an account or a vault."""
        parts = urlsplit(url)
        return cls(parts.hostname or "", parts.port or 443)

    @property
    def label(self) -> str:
        """Name of the account or vault."""
        return self.host.partition(".")[0]

    @property
    def domain(self) -> str:
        """Domain of the service, such as ``blob.core.windows.net``."""
        return self.host.partition(".")[2]

    @property
    def zone(self) -> str:
        """Name of the private DNS zone, such as ``privatelink.blob.core.windows.net``."""
        # The zone of a Key Vault does not have the name that the vault's URL has.
        return "privatelink." + re.sub(r"^vault\.", "vaultcore.", self.domain)

    @property
    def private_name(self) -> str:
        """Name to which Azure's public DNS points the service once it has a private endpoint."""
        return f"{self.label}.{self.zone}"


Resolve = Callable[[str, int], list[str]]


def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host as the system's resolver gives them.

    Raises:
        socket.gaierror: there are none, or no resolver answers.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return sorted({str(item[4][0]) for item in found})


def is_private(address: str) -> bool:
    """Say whether an address is one of a private network."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(parsed, "ipv4_mapped", None) or parsed
    return any(mapped in network for network in PRIVATE)


def insist_on_private(endpoint: Endpoint, resolve: Resolve = resolve) -> list[str]:
    """Return the addresses of a service, all of them private.

    Args:
        endpoint: the service.
        resolve: looks a name up.

    Raises:
        ServiceError: the name does not exist or nobody answers (retryable).
        Refused: it has a public address; writing there would go through the internet.
    """
    host = endpoint.host
    try:
        addresses = resolve(host, endpoint.port)
    except socket.gaierror as error:
        raise _unresolved(endpoint, error) from None
    public = [address for address in addresses if not is_private(address)]
    if public:
        raise Refused(
            f"{host} resolves to the public address {public[0]}; nothing was sent there.",
            _why_public(endpoint, resolve),
        )
    return addresses


def refuse_public(endpoint: Endpoint, resolve: Resolve = resolve) -> None:
    """Refuse a service with a public address; a DNS that fails is no reason not to start."""
    with contextlib.suppress(_Unresolved):
        insist_on_private(endpoint, resolve)


class _Unresolved(ServiceError):
    """The name has no address now."""


def _unresolved(endpoint: Endpoint, error: socket.gaierror) -> _Unresolved:
    if error.errno == socket.EAI_AGAIN:
        return _Unresolved(
            f"No DNS resolver answers for {endpoint.host}.",
            "Check the servers in /etc/resolv.conf, and the way to the resolver that forwards "
            f"{endpoint.domain}.",
            retryable=True,
        )
    return _Unresolved(
        f"The name {endpoint.host} does not exist.",
        "If it is spelled right, its private endpoint has no record in the private DNS zone "
        f"{endpoint.zone}: add the A record {endpoint.label} there (a DNS zone group on the private endpoint "
        "does it).",
        retryable=True,
    )


def _why_public(endpoint: Endpoint, resolve: Resolve) -> str:
    """Tell a DNS that is not set up from an account without a private endpoint."""
    try:
        private = all(is_private(address) for address in resolve(endpoint.private_name, endpoint.port))
    except socket.gaierror:
        return (
            f"{endpoint.private_name} does not exist, so there is no private endpoint: create one for "
            f"{endpoint.label} and register it in the private DNS zone {endpoint.zone}."
        )
    if private:
        return (
            f"{endpoint.private_name} has a private address, but {endpoint.host} does not lead to it: remove "
            "what overrides the name (/etc/hosts, a zone of your own for it)."
        )
    return (
        "There is a private endpoint, but this host's resolver does not see the private DNS zone "
        f"{endpoint.zone}. In Azure: link the zone to the host's virtual network. On premises: forward "
        f"{endpoint.domain} to the inbound endpoint of an Azure DNS Private Resolver."
    )


class _PrivateConnection(HTTPSConnection):
    """A connection that is given up before its first byte if it leads to a public address."""

    def _new_conn(self) -> socket.socket:
        made = super()._new_conn()
        address = str(made.getpeername()[0])
        if not is_private(address):
            made.close()
            endpoint = Endpoint(self.host, self.port)
            raise Refused(
                f"{self.host} now resolves to the public address {address}; nothing was sent there.",
                _why_public(endpoint, resolve),
            )
        return made


class _PrivatePool(HTTPSConnectionPool):
    ConnectionCls = _PrivateConnection


class _PrivateAdapter(HTTPAdapter):
    def init_poolmanager(self, *args: t.Any, **kwargs: t.Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"https": _PrivatePool}


def transport(*, private: bool, ca: str = "", connect_s: float = 5, read_s: float = 15) -> RequestsTransport:
    """Return what the Azure SDK sends its requests with.

    Proxies of the environment are not used: they would take the traffic out of the private network.

    Args:
        private: connect to private addresses only.
        ca: file with the certificate authority of the service; "" for the system's.
        connect_s: seconds that a connection may take.
        read_s: seconds without a byte after which a response is given up.
    """
    session = requests.Session()
    # The SDK's callers repeat what can be repeated; a repetition inside urllib3 would hide unknown outcomes.
    never = Retry(total=False, redirect=False, raise_on_status=False)
    session.mount("https://", (_PrivateAdapter if private else HTTPAdapter)(max_retries=never))
    session.trust_env = False
    return RequestsTransport(
        session=session,
        session_owner=False,
        use_env_settings=False,
        connection_verify=ca or True,
        connection_timeout=connect_s,
        read_timeout=read_s,
    )
