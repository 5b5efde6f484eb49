# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a virtual machine learns of itself, and whose token it gets."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from ironspan.lab.azure import identity, settings
from ironspan.lab.azure.arm.metadata import Instances
from ironspan.lab.azure.http import Request, no_body
from ironspan.lab.azure.world import World
from tests.support import lab_arm
from tests.unit.lab.azure.arm.conftest import Manager

ADDRESS = "10.1.0.11"


def ask(manager: Manager, folder: Path, path: str, peer: str = ADDRESS, **query: str) -> tuple[int, Any]:
    """Ask the metadata service as the machine at an address."""
    service = identity.Metadata(World(folder), Instances(manager.arm.state))
    asked = "&".join(f"{name}={value}" for name, value in {"api-version": "2021-02-01", **query}.items())
    request = Request("GET", f"{path}?{asked}", {"metadata": "true"}, no_body(), peer)
    found = asyncio.run(service(request))
    assert isinstance(found.body, bytes)
    return found.status, json.loads(found.body)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "keys").mkdir()
    return tmp_path


def claims(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


def test_a_machine_knows_itself(estate: Manager, folder: Path) -> None:
    status, found = ask(estate, folder, identity.INSTANCE_PATH)
    assert status == 200
    compute = found["compute"]
    assert (compute["name"], compute["zone"], compute["vmSize"]) == ("cp-1", "1", "Standard_D4s_v5")
    assert compute["resourceId"] == lab_arm.MACHINE
    assert compute["tagsList"] == [{"name": "ironspan-host", "value": "cp-1"}]
    first = found["network"]["interface"][0]["ipv4"]
    assert first["ipAddress"][0]["privateIpAddress"] == ADDRESS
    assert first["subnet"] == [{"address": "10.1.0.0", "prefix": "24"}]


def test_others_are_no_machines(estate: Manager, folder: Path) -> None:
    assert ask(estate, folder, identity.INSTANCE_PATH, peer="10.1.0.12")[0] == 404


def test_tokens_are_of_the_machines_own_identity(estate: Manager, folder: Path) -> None:
    own = estate.ask("GET", lab_arm.IDENTITY)[1]["properties"]
    query = {"resource": "https://vault.azure.net"}
    for more in ({}, {"client_id": own["clientId"]}, {"msi_res_id": lab_arm.IDENTITY.upper()}):
        status, found = ask(estate, folder, identity.TOKEN_PATH, **query, **more)
        assert status == 200
        assert claims(found["access_token"])["oid"] == own["principalId"]
    # One of the lab's own is every machine's; another estate identity is not.
    writer = settings.IDENTITIES["writer"]
    found = ask(estate, folder, identity.TOKEN_PATH, **query, client_id=writer.client_id)[1]
    assert claims(found["access_token"])["oid"] == writer.object_id
    status, _ = ask(estate, folder, identity.TOKEN_PATH, **query, client_id=own["clientId"], peer="10.1.0.12")
    assert status == 400
    estate.put(lab_arm.IDENTITY.replace("cp-1", "two"), {"location": lab_arm.REGION})
    both: dict[str, Any] = {lab_arm.IDENTITY: {}, lab_arm.IDENTITY.replace("cp-1", "two"): {}}
    estate.ask(
        "PATCH", lab_arm.MACHINE, {"identity": {"type": "UserAssigned", "userAssignedIdentities": both}}
    )
    assert ask(estate, folder, identity.TOKEN_PATH, **query)[0] == 400
