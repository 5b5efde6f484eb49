# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Role assignments that end, as Privileged Identity Management lists and ends them.

Format: "Role Assignment Schedule Instances - List For Scope" (Azure REST reference), version 2020-10-01.
Tests say which principals' assignments end (`role_ends`); people do it in the portal.
"""

from __future__ import annotations

import re
from typing import Any

from ironspan.lab.azure.arm.errors import ArmError
from ironspan.lab.azure.arm.rules.access import ASSIGNMENT, BUILT_IN, DEFINITION, principal
from ironspan.lab.azure.arm.state import Resource, State, written_time
from ironspan.lab.azure.arm.web import Answer, Asked

_INSTANCES = "Microsoft.Authorization/roleAssignmentScheduleInstances"
_PATH = re.compile(rf"/subscriptions/[^/]+/providers/{re.escape(_INSTANCES)}\Z", re.IGNORECASE)
_VERSION = "2020-10-01"


class Schedules:
    """Answers requests for the role assignments that are in force, and until when each is."""

    def __init__(self, state: State) -> None:
        self._state = state

    def answer(self, asked: Asked) -> Answer | None:
        """Answer a request; None when it is about something else."""
        if asked.method != "GET" or not _PATH.match(asked.path):
            return None
        if asked.version != _VERSION:
            raise ArmError(
                400,
                "InvalidResourceType",
                f"No registered resource provider found for API version '{asked.version}' and type "
                f"'roleAssignmentScheduleInstances'. The supported api-versions are '{_VERSION}'.",
            )
        return Answer(200, {"value": [self._instance(one) for one in self._state.of_type(ASSIGNMENT)]})

    def _instance(self, assignment: Resource) -> dict[str, Any]:
        about = assignment.properties
        who, role = str(about.get("principalId")), str(about.get("roleDefinitionId"))
        scope, name = str(about.get("scope")), str(assignment.document["name"])
        ends = _end(self._state, assignment)
        identity = principal(self._state, who)
        shown = {"id": who, "type": "ServicePrincipal"}
        if identity is not None:
            shown["displayName"] = str(identity.document["name"])
        properties = {
            "scope": scope,
            "roleDefinitionId": role,
            "principalId": who,
            "principalType": about.get("principalType", "ServicePrincipal"),
            "status": "Provisioned",
            "startDateTime": about.get("createdOn"),
            "assignmentType": "Assigned",
            "memberType": "Direct",
            "originRoleAssignmentId": assignment.id,
            "expandedProperties": {
                "principal": shown,
                "roleDefinition": {"id": role, "displayName": self._role(role), "type": "CustomRole"},
                "scope": {"id": scope, "displayName": scope.rpartition("/")[2], "type": "resource"},
            },
        }
        # One that does not end has no such field.
        lasting = {"endDateTime": written_time(ends)} if ends is not None else {}
        return {
            "id": f"{scope}/providers/{_INSTANCES}/{name}",
            "name": name,
            "type": _INSTANCES,
            "properties": {**properties, **lasting},
        }

    def _role(self, role: str) -> str:
        own = role.rpartition("/")[2].lower()
        for one in self._state.of_type(DEFINITION):
            if str(one.document["name"]).lower() == own:
                return str(one.properties.get("roleName"))
        return BUILT_IN.get(own, own)


def _end(state: State, assignment: Resource) -> float | None:
    """Return when an assignment ends, Unix seconds; None for one that does not."""
    return state.settings.role_ends.get(str(assignment.properties.get("principalId")).lower())


def expire(state: State) -> bool:
    """Take away assignments whose time is over. Returns whether there were any."""
    over = [
        one
        for one in state.of_type(ASSIGNMENT)
        if (ends := _end(state, one)) is not None and ends <= state.now()
    ]
    for one in over:
        del state.resources[one.key]
        # Whoever is assigned the role again is so without an end.
        state.settings.role_ends.pop(str(one.properties.get("principalId")).lower(), None)
    return bool(over)
