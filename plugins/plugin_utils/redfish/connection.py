# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The way to one BMC: TLS that is always verified, one host only, an end to every wait and every answer.

A certificate is trusted when it is one of those that are pinned, or when the site's authority for BMCs signed
it for this address. Which of the two it is, is known before anything is sent.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import ipaddress
import socket
import ssl
import time
import typing as t
from urllib.parse import urlsplit

import requests
import urllib3
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.errors import (
    Broken,
    Unreachable,
    Untrusted,
)
from requests.adapters import HTTPAdapter

PORT = 443
REQUEST_S = 30.0
"""How long a BMC may take for one answer: slow ones take more than 10 s for an account or a log."""
LARGEST = 8 << 20
"""Bytes of one answer; a page of a log is below 1 MB."""
_CHUNK = 64 << 10


@dataclasses.dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a BMC is.

    Args:
        name: of the server, for messages.
        address: IP address or name.
        port: of HTTPS.
    """

    name: str
    address: str
    port: int = PORT

    @property
    def url(self) -> str:
        """The address for requests, without a path."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"https://{host}" if self.port == PORT else f"https://{host}:{self.port}"


@dataclasses.dataclass(frozen=True, slots=True)
class Trust:
    """Which certificates are taken.

    Args:
        authorities: PEM of the authorities whose certificates for this address are taken; "" for none.
        pins: SHA-256 of certificates (64 small hexadecimal digits) that are taken as they are.
    """

    authorities: str = ""
    pins: frozenset[str] = frozenset()


class Deadline:
    """The time that is left for something.

    Args:
        seconds: from now on.
        what: what it is for, a clause.
    """

    def __init__(self, seconds: float, what: str = "answer") -> None:
        self._until = time.monotonic() + seconds
        self._what, self._seconds = what, seconds

    @property
    def left(self) -> float:
        """Seconds that are left, 0 when it is over."""
        return max(0.0, self._until - time.monotonic())

    def extend(self, seconds: float) -> None:
        """Move it by so many seconds."""
        self._until += seconds
        self._seconds += seconds

    def insist(self, name: str) -> float:
        """Return the seconds that are left.

        Raises:
            Unreachable: none.
        """
        if not self.left:
            raise Unreachable(
                f"{name}: the BMC did not {self._what} within {self._seconds:.0f} s",
                "look at its network; restart the BMC when it is slow to everybody",
            )
        return self.left


def shown_certificate(endpoint: Endpoint, seconds: float) -> tuple[str, bytes]:
    """Return the SHA-256 of the certificate that a BMC shows, and its DER; nothing but the handshake is sent.

    Raises:
        Unreachable: no connection.
        Untrusted: it speaks no TLS that is taken today.
    """
    context = _unverified()
    try:
        with (
            socket.create_connection((endpoint.address, endpoint.port), timeout=seconds) as plain,
            context.wrap_socket(plain, server_hostname=_server_name(endpoint)) as wrapped,
        ):
            der = wrapped.getpeercert(binary_form=True) or b""
    except ssl.SSLError as error:
        raise Untrusted(
            f"{endpoint.name}: no TLS connection to {endpoint.address}: {error.reason or error}",
            "the BMC has to speak TLS 1.2 or later; update its firmware",
        ) from None
    except OSError as error:
        raise Unreachable(
            f"{endpoint.name}: no connection to the BMC at {endpoint.address}: {error.strerror or error}",
            "look at its network and its power",
        ) from None
    return hashlib.sha256(der).hexdigest(), der


def connector(endpoint: Endpoint, trust: Trust, deadline: Deadline) -> t.Any:
    """Return a connector of sushy that speaks to this BMC only, and only when its certificate is trusted.

    Args:
        endpoint: where it is.
        trust: which certificates are taken.
        deadline: for everything that is done with it.

    Raises:
        Unreachable: no connection.
        Untrusted: neither pinned nor signed.
    """
    # sushy is part of the extra "metal"; whoever has no BMC needs none of it.
    from sushy.connector import Connector

    found, _ = shown_certificate(endpoint, min(REQUEST_S, deadline.insist(endpoint.name)))
    if found not in trust.pins:
        insist_on_signed(endpoint, trust, found, min(REQUEST_S, deadline.insist(endpoint.name)))
    # One try: what may have been done already (a reset, a password) is not to be asked for twice unseen.
    made = Connector(endpoint.url, server_side_retries=1, server_side_retries_delay=1)
    made._session.trust_env = False  # neither a proxy nor somebody's .netrc
    made._session.max_redirects = 0
    made._session.mount("https://", _OneHost(endpoint, trust, found if found in trust.pins else "", deadline))
    made._session.mount("http://", _Nowhere(endpoint))
    return made


def insist_on_signed(endpoint: Endpoint, trust: Trust, found: str, seconds: float) -> None:
    """Refuse a certificate that the authorities did not sign for this address.

    Raises:
        Untrusted: they did not; the message has its fingerprint, to compare with the BMC's own.
        Unreachable: no connection.
    """
    reason = "no authority for it is known"
    if trust.authorities:
        try:
            with (
                socket.create_connection((endpoint.address, endpoint.port), timeout=seconds) as plain,
                _verified(trust).wrap_socket(plain, server_hostname=_server_name(endpoint)),
            ):
                return
        except ssl.SSLCertVerificationError as error:
            reason = error.verify_message.rstrip(".")
        except OSError as error:
            raise Unreachable(
                f"{endpoint.name}: no connection to the BMC at {endpoint.address}: {error.strerror or error}",
                "look at its network and its power",
            ) from None
    raise Untrusted(
        f"{endpoint.name}: the certificate at {endpoint.address} is not trusted ({reason}); "
        f"its SHA-256 is {found}. Nothing was sent.",
        "Compare it with what the BMC itself or its maker says, and write it into the file of factory "
        "accounts (docs/bmc.md); if it is another one, somebody stands between.",
    )


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _verified(trust: Trust) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(cadata=trust.authorities)
    return context


def _server_name(endpoint: Endpoint) -> str:
    return endpoint.address


class _Nowhere(HTTPAdapter):
    """Refuses everything: nothing is sent without TLS."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__()
        self._endpoint = endpoint

    def send(self, request: requests.PreparedRequest, *args: t.Any, **more: t.Any) -> requests.Response:
        raise Untrusted(f"{self._endpoint.name}: the BMC leads to {urlsplit(request.url or '').netloc!s}")


class _OneHost(HTTPAdapter):
    """Speaks to one BMC: its trust, its deadline, and no answer without an end.

    Args:
        endpoint: where it is.
        trust: which certificates are taken.
        pin: the one certificate that is taken, "" to have it verified.
        deadline: for all requests together.
    """

    def __init__(self, endpoint: Endpoint, trust: Trust, pin: str, deadline: Deadline) -> None:
        self._endpoint = endpoint
        self._context = _unverified() if pin else _verified(trust)
        # urllib3 sets what it is not told; with a pin it compares the certificate before anything is sent.
        self._tls = {"cert_reqs": "CERT_NONE", "assert_fingerprint": pin} if pin else {}
        self._deadline = deadline
        super().__init__()

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **more: t.Any) -> None:
        more.update(self._tls, ssl_context=self._context)
        super().init_poolmanager(connections, maxsize, block, **more)

    def build_connection_pool_key_attributes(
        self, request: t.Any, verify: t.Any, cert: t.Any = None
    ) -> t.Any:
        return super().build_connection_pool_key_attributes(request, False, None)[0], {}

    def cert_verify(self, conn: t.Any, url: t.Any, verify: t.Any, cert: t.Any) -> None:
        """Leave the connection alone: requests would add the authorities of the world."""

    def send(self, request: requests.PreparedRequest, *args: t.Any, **more: t.Any) -> requests.Response:
        asked = urlsplit(request.url or "")
        ours = urlsplit(self._endpoint.url)
        if (asked.hostname, asked.port) != (ours.hostname, ours.port):
            # An answer names where to go on. Whoever follows it to another host sends the password there.
            raise Untrusted(f"{self._endpoint.name}: the BMC leads to another host, {asked.netloc!s}")
        left = self._deadline.insist(self._endpoint.name)
        more.update(stream=True, timeout=min(REQUEST_S, left))
        response = super().send(request, **more)
        try:
            response._content = self._body(response)
        finally:
            # Many BMCs choke on connections that stay open; one that is reused may just be closed by them.
            self.poolmanager.clear()
        return response

    def _body(self, response: requests.Response) -> bytes:
        found = bytearray()
        with contextlib.closing(response.raw):
            try:
                for chunk in response.raw.stream(_CHUNK, decode_content=True):
                    found += chunk
                    if len(found) > LARGEST:
                        raise Broken(
                            f"{self._endpoint.name}: the BMC's answer is longer than {LARGEST} bytes"
                        )
                    self._deadline.insist(self._endpoint.name)
            except urllib3.exceptions.HTTPError as error:
                raise requests.ConnectionError(error, request=response.request) from error
        response._content_consumed = True
        return bytes(found)


def is_address(text: str) -> bool:
    """Tell an IP address from a name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
