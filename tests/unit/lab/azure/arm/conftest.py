# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The resource manager without its process: requests go in, answers come out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ironspan.lab.azure import settings
from ironspan.lab.azure.arm import ids, kinds
from ironspan.lab.azure.arm.service import Arm
from ironspan.lab.azure.http import Request, no_body
from tests.support import lab_arm

OWNER = settings.IDENTITIES["operator"].object_id


class Manager:
    """A resource manager in a folder."""

    def __init__(self, folder: Path) -> None:
        self.arm = Arm(folder)
        self.headers: dict[str, str] = {}

    def ask(
        self, method: str, path: str, body: Any = None, version: str = "", who: str = OWNER, **query: str
    ) -> tuple[int, Any]:
        """Send a request; returns status and document. The version is the type's own when none is given."""
        known = kinds.known(parsed.type) if (parsed := ids.parse(path)) is not None else None
        version = version or (known.versions[0] if known is not None else "2025-07-01")
        asked = "&".join(f"{name}={value}" for name, value in {"api-version": version, **query}.items())
        request = Request(method, f"{path}?{asked}", {"host": "localhost"}, no_body())
        answer = self.arm.serve(request, b"" if body is None else json.dumps(body).encode(), who)
        self.headers = answer.headers
        assert isinstance(answer.body, bytes)
        return answer.status, json.loads(answer.body) if answer.body else None

    def code(self, method: str, path: str, body: Any = None, **more: Any) -> str:
        """Send a request that is refused; returns the code."""
        status, document = self.ask(method, path, body, **more)
        assert status >= 400, document
        return str(document["error"]["code"])

    def deploy(self, template: dict[str, Any], name: str = "lab") -> dict[str, Any]:
        """Deploy to the subscription; returns the properties that the deployment ends with."""
        path = f"{lab_arm.SCOPE}/providers/Microsoft.Resources/deployments/{name}"
        body = {"location": lab_arm.REGION, "properties": {"mode": "Incremental", "template": template}}
        status, answer = self.ask("PUT", path, body)
        assert status in (200, 201), answer
        found: dict[str, Any] = self.ask("GET", path)[1]["properties"]
        return found

    def stack(self, template: dict[str, Any], **more: Any) -> dict[str, Any]:
        """Deploy a stack; returns the properties that it ends with."""
        path = f"{lab_arm.SCOPE}/providers/Microsoft.Resources/deploymentStacks/lab"
        properties = {
            "template": template,
            "actionOnUnmanage": {"resources": "detach", "resourceGroups": "detach"},
            "denySettings": {"mode": "none"},
            **more,
        }
        status, answer = self.ask("PUT", path, {"location": lab_arm.REGION, "properties": properties})
        assert status in (200, 201), answer
        found: dict[str, Any] = self.ask("GET", path)[1]["properties"]
        return found

    def put(self, id: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Write a resource."""
        return self.ask("PUT", id, body)

    def group(self, name: str = "net") -> None:
        """Make a resource group."""
        assert self.put(lab_arm.group_id(name), {"location": lab_arm.REGION})[0] in (200, 201)


@pytest.fixture
def manager(tmp_path: Path) -> Manager:
    """An empty subscription."""
    return Manager(tmp_path)


@pytest.fixture
def estate(manager: Manager) -> Manager:
    """A subscription with the small estate, deployed plainly."""
    assert manager.deploy(lab_arm.estate())["provisioningState"] == "Succeeded"
    return manager
