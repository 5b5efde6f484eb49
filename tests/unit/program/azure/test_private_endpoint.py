# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Nothing goes to a public address, and the message says what is missing in the DNS."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest
import requests

from ironspan.azure import private_endpoint
from ironspan.azure.private_endpoint import (
    Endpoint,
    insist_on_private,
    is_private,
    refuse_public,
    transport,
)
from ironspan.program.errors import Refused, ServiceError

ACCOUNT = Endpoint.of("https://acme.blob.core.windows.net")
PRIVATE_NAME = "acme.privatelink.blob.core.windows.net"


def resolver(**answers: list[str] | int) -> Callable[[str, int], list[str]]:
    """Return a resolver: ``name`` for the account, ``private`` for its private name; a number is an error."""
    by_name = {ACCOUNT.host: answers["name"], PRIVATE_NAME: answers.get("private", socket.EAI_NONAME)}

    def resolve(host: str, port: int) -> list[str]:
        answer = by_name[host]
        if isinstance(answer, int):
            raise socket.gaierror(answer, "failed")
        return answer

    return resolve


@pytest.mark.parametrize(
    ("address", "private"),
    [
        ("10.0.0.4", True),
        ("172.16.0.1", True),
        ("172.32.0.1", False),
        ("192.168.1.9", True),
        ("100.64.3.2", True),
        ("127.0.0.1", True),
        ("20.60.1.2", False),
        ("169.254.169.254", False),
        ("0.0.0.0", False),
        ("fd00::4", True),
        ("fe80::1%eth0", False),
        ("2603:1030::1", False),
        ("::ffff:10.0.0.4", True),
        ("::ffff:20.60.1.2", False),
        ("::1", True),
    ],
)
def test_private_addresses(address: str, private: bool) -> None:
    assert is_private(address) is private


@pytest.mark.parametrize(
    ("url", "zone", "name"),
    [
        (
            "https://acme.blob.core.windows.net",
            "privatelink.blob.core.windows.net",
            "acme.privatelink.blob.core.windows.net",
        ),
        (
            "https://acme.blob.core.usgovcloudapi.net:443/",
            "privatelink.blob.core.usgovcloudapi.net",
            "acme.privatelink.blob.core.usgovcloudapi.net",
        ),
        (
            "https://keys.vault.azure.net",
            "privatelink.vaultcore.azure.net",
            "keys.privatelink.vaultcore.azure.net",
        ),
        (
            "https://keys.vault.azure.cn/",
            "privatelink.vaultcore.azure.cn",
            "keys.privatelink.vaultcore.azure.cn",
        ),
    ],
)
def test_the_zone_of_a_service(url: str, zone: str, name: str) -> None:
    endpoint = Endpoint.of(url)
    assert (endpoint.zone, endpoint.private_name, endpoint.port) == (zone, name, 443)


def test_private_addresses_pass() -> None:
    assert insist_on_private(ACCOUNT, resolver(name=["10.1.0.5", "10.1.0.6"])) == ["10.1.0.5", "10.1.0.6"]


@pytest.mark.parametrize(
    ("answers", "retryable", "texts"),
    [
        (
            {"name": ["20.60.1.2"]},
            False,
            ["public address 20.60.1.2", f"{PRIVATE_NAME} does not exist", "create one for acme"],
        ),
        (
            {"name": ["20.60.1.2"], "private": ["20.60.1.2"]},
            False,
            [
                "does not see the private DNS zone privatelink.blob.core.windows.net",
                "forward blob.core.windows.net",
                "link the zone",
            ],
        ),
        ({"name": ["20.60.1.2"], "private": ["10.1.0.5"]}, False, ["overrides the name"]),
        ({"name": ["10.1.0.5", "20.60.1.2"], "private": ["10.1.0.5"]}, False, ["20.60.1.2"]),
        ({"name": socket.EAI_NONAME}, True, ["does not exist", "add the A record acme there"]),
        ({"name": socket.EAI_AGAIN}, True, ["No DNS resolver answers", "/etc/resolv.conf"]),
    ],
)
def test_what_is_wrong_with_the_dns(
    answers: dict[str, list[str] | int], retryable: bool, texts: list[str]
) -> None:
    with pytest.raises(ServiceError) as caught:
        insist_on_private(ACCOUNT, resolver(**answers))
    assert caught.value.retryable is retryable
    assert not [text for text in texts if text not in str(caught.value)]


@pytest.mark.parametrize(
    ("answers", "refused"),
    [
        ({"name": ["10.1.0.5"]}, False),
        ({"name": socket.EAI_NONAME}, False),
        ({"name": socket.EAI_AGAIN}, False),
        ({"name": ["20.60.1.2"]}, True),
    ],
)
def test_a_dns_that_fails_does_not_keep_the_agent_from_starting(
    answers: dict[str, list[str] | int], refused: bool
) -> None:
    if refused:
        with pytest.raises(Refused, match="public address"):
            refuse_public(ACCOUNT, resolver(**answers))
    else:
        refuse_public(ACCOUNT, resolver(**answers))


def test_a_connection_to_a_public_address_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A DNS that changes after the first look: loopback plays the public address."""
    monkeypatch.setattr(private_endpoint, "PRIVATE", private_endpoint.PRIVATE[:1])
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        session = transport(private=True).session
        assert isinstance(session, requests.Session)
        with pytest.raises(Refused, match=r"localhost now resolves to the public address 127\.0\.0\.1"):
            session.get(f"https://localhost:{port}/", timeout=60)
        server.settimeout(60)
        peer, _ = server.accept()
        with peer:
            peer.settimeout(60)
            assert peer.recv(1) == b""


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    session = transport(private=True).session
    assert isinstance(session, requests.Session)
    assert not session.merge_environment_settings("https://acme.example", {}, None, None, None)["proxies"]
