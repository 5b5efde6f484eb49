# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What keeps a resource from being written or deleted before its own rules are asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ironspan.lab.azure import settings
from ironspan.lab.azure.arm import ids, kinds, sizes
from ironspan.lab.azure.arm.errors import ArmError, not_found
from ironspan.lab.azure.arm.ids import ResourceId
from ironspan.lab.azure.arm.state import Resource, State


@dataclass(frozen=True)
class Caller:
    """Who asks.

    Attributes:
        object_id: `oid` of the token.
        stack: Key of the deployment stack that acts for them; its own deny settings do not hold it up.
    """

    object_id: str
    stack: str = ""


def check_location(kind: kinds.Kind, id: ResourceId, sent: dict[str, Any], old: Resource | None) -> None:
    if kind.location in ("none", "optional"):
        return
    given = sent.get("location")
    if not given:
        if old is None or kind.location == "global":
            raise ArmError(400, "LocationRequired", "The location property is required for this definition.")
        sent["location"] = given = old.document["location"]
    place = sizes.location(str(given))
    if kind.location == "global" and place != "global":
        raise ArmError(
            400, "LocationNotAvailableForResourceType",
            f"The provided location '{given}' is not available for resource type '{kind.type}'. List of "
            "available regions for the resource type is 'global'.",
        )  # fmt: skip
    if kind.location == "required" and place not in sizes.REGIONS:
        raise ArmError(
            400, "LocationNotAvailableForResourceType",
            f"The provided location '{given}' is not available for resource type '{kind.type}'. List of "
            f"available regions for the resource type is '{','.join(sizes.REGIONS)}'.",
        )  # fmt: skip
    if old is not None and sizes.location(str(old.document.get("location", place))) != place:
        raise ArmError(
            409, "InvalidResourceLocation",
            f"The resource '{id.name}' already exists in location '{old.document['location']}' in resource "
            f"group '{id.group}'. A resource with the same name cannot be created in location '{given}'.",
        )  # fmt: skip


def check_place(state: State, kind: kinds.Kind, id: ResourceId) -> None:
    if id.subscription.lower() != settings.SUBSCRIPTION:
        raise ArmError(
            404, "SubscriptionNotFound", f"The subscription '{id.subscription}' could not be found."
        )
    if kind.provider not in state.registered and kind.provider not in kinds.ALWAYS_REGISTERED:
        raise ArmError(
            409,
            "MissingSubscriptionRegistration",
            f"The subscription is not registered to use namespace '{kind.provider}'. See "
            "https://aka.ms/rps-not-found for how to register subscriptions.",
            [
                {
                    "code": "MissingSubscriptionRegistration",
                    "target": kind.provider,
                    "message": kind.provider,
                }
            ],
        )
    group = f"/subscriptions/{id.subscription}/resourceGroups/{id.group}"
    if id.group and kind.type != ids.GROUP_TYPE:
        found = state.find(group)
        if found is None:
            raise ArmError(404, "ResourceGroupNotFound", f"Resource group '{id.group}' could not be found.")
        if found.properties.get("provisioningState") == "Deleting":
            raise ArmError(
                409, "ResourceGroupBeingDeleted",
                f"The resource group '{id.group}' is in deprovisioning state and cannot perform this "
                "operation.",
            )  # fmt: skip
    above = id.parent or ids.parse(id.scope)
    if above is not None and kinds.known(above.type) and state.part(above.text) is None:
        if id.parent is not None:
            raise ArmError(
                404, "ParentResourceNotFound",
                f"Failed to perform 'write' on resource(s) of type '{kind.type}', because the parent "
                f"resource '{above.text}' could not be found.",
            )  # fmt: skip
        raise not_found(above.text)


def check_busy(state: State, id: ResourceId) -> None:
    here: ResourceId | None = id
    while here is not None:
        found = state.find(here.text)
        if found is not None and found.operation:
            raise ArmError(
                409,
                "AnotherOperationInProgress",
                "Another operation on this or dependent resource is in progress. To retrieve status of "
                f"the operation use uri: /operations/{found.operation}. Resource: {found.id}.",
                headers={"retry-after": f"{state.settings.retry_after_s:g}"}
                if state.settings.retry_after_s
                else {},
            )
        here = here.parent


def check_denied(state: State, id: ResourceId, verb: str, caller: Caller) -> None:
    action = f"{id.type}/{verb}"
    for key, stack in state.stacks.items():
        if key == caller.stack:
            continue
        properties = stack["document"]["properties"]
        deny = properties.get("denySettings") or {}
        mode = str(deny.get("mode", "none"))
        if mode == "none" or (mode == "denyDelete" and verb != "delete"):
            continue
        excluded = [str(one).lower() for one in deny.get("excludedPrincipals") or []]
        free = [str(one).lower() for one in deny.get("excludedActions") or []]
        if caller.object_id.lower() in excluded or action.lower() in free:
            continue
        for one in stack.get("denied", []):
            if id.key == one or (deny.get("applyToChildScopes") and ids.below(id.key, one)):
                raise ArmError(
                    403,
                    "DenyAssignmentAuthorizationFailed",
                    f"The client '{caller.object_id}' with object id '{caller.object_id}' has permission "
                    f"to perform action '{action}' on scope '{id.text}'; however, the access is denied "
                    "because of the deny assignment with name 'Deny assignment created by Deployment "
                    f"Stack {stack['document']['id']}'.",
                )
