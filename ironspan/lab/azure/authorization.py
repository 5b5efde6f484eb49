# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The resource manager's answers about roles: which identity has which, and what a role allows."""

from __future__ import annotations

import re
from typing import Any

from ironspan.lab.azure import settings

_ASSIGNMENTS = re.compile(
    r"(?P<scope>/subscriptions/.+)/providers/Microsoft\.Authorization/roleAssignments\Z", re.IGNORECASE
)
_DEFINITION = re.compile(r".*/providers/Microsoft\.Authorization/roleDefinitions/(?P<id>[0-9a-f-]+)\Z", re.I)
_FILTER = re.compile(r"assignedTo\('(?P<id>[^']+)'\)\Z")
_SERVICE = "Microsoft.Storage/storageAccounts/blobServices"
#: The lab's short names of actions as Azure writes them; the rest are actions of the resource manager.
_DATA_ACTIONS = {
    "blobs/read": f"{_SERVICE}/containers/blobs/read",
    "blobs/write": f"{_SERVICE}/containers/blobs/write",
    "blobs/add": f"{_SERVICE}/containers/blobs/add/action",
    "blobs/delete": f"{_SERVICE}/containers/blobs/delete",
}


def _definition_id(role: str) -> str:
    place = f"/subscriptions/{settings.SUBSCRIPTION}/providers/Microsoft.Authorization/roleDefinitions"
    return f"{place}/{settings.identifier(f'role-{role}')}"


def answer(path: str, query: dict[str, str]) -> dict[str, Any] | None:
    """Return the document that a GET of `path` has, None when the path is not about roles."""
    listed = _ASSIGNMENTS.match(path)
    if listed is not None:
        filtered = _FILTER.match(query.get("$filter", ""))
        wanted = settings.by_object(filtered["id"]) if filtered else None
        return {"value": [_assignment(wanted, listed["scope"])] if wanted and wanted.actions else []}
    asked = _DEFINITION.match(path)
    if asked is not None:
        for role, actions in settings.ROLES.items():
            if asked["id"] == settings.identifier(f"role-{role}"):
                return _definition(role, actions)
    return None


def _assignment(identity: settings.Identity, scope: str) -> dict[str, Any]:
    name = settings.identifier(f"assignment-{identity.name}")
    return {
        "id": f"{scope}/providers/Microsoft.Authorization/roleAssignments/{name}",
        "name": name,
        "type": "Microsoft.Authorization/roleAssignments",
        "properties": {
            "roleDefinitionId": _definition_id(identity.name),
            "principalId": identity.object_id,
            "principalType": "ServicePrincipal",
            "scope": scope,
        },
    }


def _definition(role: str, actions: frozenset[str]) -> dict[str, Any]:
    return {
        "id": _definition_id(role),
        "type": "Microsoft.Authorization/roleDefinitions",
        "properties": {
            "roleName": f"lab {role}",
            "type": "CustomRole",
            "permissions": [
                {
                    "actions": [f"{_SERVICE}/containers/read"],
                    "notActions": [],
                    "dataActions": [_DATA_ACTIONS[one] for one in sorted(actions) if one in _DATA_ACTIONS],
                    "notDataActions": [],
                }
            ],
        },
    }
