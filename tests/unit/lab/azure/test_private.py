# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Private endpoints lead to what each was made for: what a request that came by one may reach."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ironspan.lab.azure import declared
from ironspan.lab.azure.arm.state import Resource, State, subscription_scope
from ironspan.lab.azure.http import Request, Response, no_body
from ironspan.lab.azure.private import Private

GROUP = f"{subscription_scope()}/resourceGroups/data/providers"
ACCOUNTS = ("one", "two")


def put(state: State, type: str, name: str, properties: dict[str, Any]) -> str:
    id = f"{GROUP}/{type}/{name}"
    document = {"id": id, "name": name, "type": type, "properties": properties}
    state.resources[id.lower()] = Resource(document)
    return id


@pytest.fixture
def state(tmp_path: Path) -> State:
    """Two closed accounts, each with an endpoint; that of a third one was not approved."""
    made = State(tmp_path)
    for number, name in enumerate((*ACCOUNTS, "three")):
        account = put(made, "Microsoft.Storage/storageAccounts", name, {"publicNetworkAccess": "Disabled"})
        about = {
            "privateLinkServiceId": account,
            "groupIds": ["blob"],
            "privateLinkServiceConnectionState": {"status": "Pending" if name == "three" else "Approved"},
        }
        config = {"fqdn": f"{name}.blob.core.windows.net", "ipAddresses": [f"10.0.0.{4 + number}"]}
        link = {"name": "blob", "properties": about}
        endpoint = {"privateLinkServiceConnections": [link], "customDnsConfigs": [config]}
        put(made, "Microsoft.Network/privateEndpoints", name, endpoint)
    return made


@pytest.mark.parametrize(
    ("came_to", "account", "reached"),
    [
        ("10.0.0.4", "one", True),
        ("10.0.0.5", "two", True),
        ("10.0.0.4", "two", False),
        ("10.0.0.6", "three", False),
        ("10.0.0.9", "one", False),
    ],
)
def test_an_endpoint_leads_to_its_own_account_and_to_no_other(
    state: State, came_to: str, account: str, reached: bool
) -> None:
    seen: list[Request] = []

    async def store(request: Request) -> Response:
        seen.append(request)
        return Response(200)

    async def vaults(request: Request) -> Response:
        raise AssertionError("not a vault")

    host = {"host": f"{account}.blob.core.windows.net"}
    asyncio.run(Private(state, store, vaults)(Request("GET", "/c/b", host, no_body(), local=came_to)))
    if reached:
        assert declared.insist_on_private(state, seen[0], account).document["name"] == account
        return
    with pytest.raises(declared.Refusal) as caught:
        declared.insist_on_private(state, seen[0], account)
    assert (caught.value.status, caught.value.code) == (403, "AuthorizationFailure")


def test_the_name_decides_between_account_and_vault(state: State) -> None:
    asked: list[str] = []

    def handler(name: str) -> Any:
        async def answer(request: Request) -> Response:
            asked.append(name)
            return Response(200)

        return answer

    door = Private(state, handler("store"), handler("vaults"), anywhere=True)
    for host in ("a.vault.azure.net:443", "a.blob.core.windows.net"):
        asyncio.run(door(Request("GET", "/", {"host": host}, no_body())))
    assert asked == ["vaults", "store"]
