# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Deployment stacks: they manage what they deploy, deny it to others, delete it or let it go."""

from __future__ import annotations

import copy
import uuid
from typing import Any

from ironspan.lab.azure.arm import ids, schema, templates
from ironspan.lab.azure.arm.deployments import Deployments
from ironspan.lab.azure.arm.engine import Engine
from ironspan.lab.azure.arm.errors import ArmError
from ironspan.lab.azure.arm.guards import Caller
from ironspan.lab.azure.arm.ids import ResourceId
from ironspan.lab.azure.arm.state import Operation, State
from ironspan.lab.azure.arm.templates import Part

MODEL = "azure.mgmt.resource.deploymentstacks.models:DeploymentStack"
WHAT_IF_MODEL = "azure.mgmt.resource.deploymentstacks.models:DeploymentStacksWhatIfResult"
VERSION = "2025-07-01"
#: What Azure has no delete for.
KEPT = ("microsoft.keyvault/vaults/keys", "microsoft.storage/storageaccounts/blobservices")
_MOST_PRINCIPALS, _MOST_ACTIONS = 5, 200
_TERMINAL = ("succeeded", "failed", "canceled")


def check_body(body: dict[str, Any], model: str, scope: str) -> None:
    """Refuse a stack's body that its model does not allow; its template is read later. Raises ArmError."""
    sent = {name: one for name, one in body.items() if name not in ("id", "name", "type", "systemData")}
    wrong = schema.problems(model, sent)
    if wrong:
        raise ArmError(400, wrong[0].code, wrong[0].message, target=wrong[0].path)
    properties = body.get("properties")
    if not isinstance(properties, dict):
        raise ArmError(
            400, "InvalidRequestContent", "The request content was invalid: 'properties' is missing."
        )
    if "/resourcegroups/" not in scope.lower() and not body.get("location"):
        raise ArmError(400, "LocationRequired", "The location property is required for this definition.")
    for name, most in (("excludedPrincipals", _MOST_PRINCIPALS), ("excludedActions", _MOST_ACTIONS)):
        if len(properties["denySettings"].get(name) or []) > most:
            raise ArmError(
                400,
                "DeploymentStackInvalidDenySettings",
                f"denySettings.{name} has more than {most} entries.",
            )


class Stacks:
    """Deploys and removes stacks."""

    def __init__(self, engine: Engine, deployments: Deployments) -> None:
        self._engine = engine
        self._deployments = deployments
        engine.steps["stack"] = self._step
        engine.steps["stack_delete"] = self._delete_step

    @property
    def _state(self) -> State:
        return self._engine.state

    def put(self, id: ResourceId, body: dict[str, Any], caller: Caller) -> tuple[Operation, bool]:
        """Create or update a stack.

        Returns:
            The operation, and whether the stack is new.

        Raises:
            ArmError: The body is wrong, or another operation runs on the stack.
        """
        state = self._state
        there = state.stacks.get(id.key)
        if there is not None and there["document"]["properties"]["provisioningState"] not in _TERMINAL:
            raise ArmError(
                409,
                "DeploymentStackInNonTerminalState",
                f"The operation on Deployment Stack '{id.name}' cannot be performed: it is in state "
                f"'{there['document']['properties']['provisioningState']}'.",
            )
        check_body(body, MODEL, id.scope)
        properties = body["properties"]
        old = there["document"] if there is not None else None
        document: dict[str, Any] = {
            "id": id.text, "name": id.name, "type": ids.STACK_TYPE,
            "systemData": {
                "createdBy": caller.object_id, "createdByType": "Application",
                "createdAt": old["systemData"]["createdAt"] if old else state.stamp(),
                "lastModifiedBy": caller.object_id, "lastModifiedByType": "Application",
                "lastModifiedAt": state.stamp(),
            },
            "properties": {
                "provisioningState": "validating", "correlationId": str(uuid.uuid4()),
                "actionOnUnmanage": properties["actionOnUnmanage"],
                "denySettings": properties["denySettings"],
                "deploymentScope": properties.get("deploymentScope") or id.scope,
                "resources": old["properties"]["resources"] if old else [],
                "detachedResources": [], "deletedResources": [], "failedResources": [],
                **({"description": properties["description"]} if properties.get("description") else {}),
            },
        }  # fmt: skip
        for name in ("location", "tags"):
            if body.get(name) is not None:
                document[name] = body[name]
        kept = {"baseline": {}, "denied": [], **(there or {}), "document": document}
        state.stacks[id.key] = kept
        operation = state.begin("stack", id.text, 2.0)
        operation.data = {
            "phase": "validating", "template": properties.get("template"), "caller": caller.object_id,
            "parameters": properties.get("parameters") or {},
        }  # fmt: skip
        return operation, there is None

    def _step(self, operation: Operation) -> None:
        kept = self._state.stacks.get(operation.target.lower())
        if kept is None:
            operation.status = "Canceled"
            return
        try:
            getattr(self, f"_{operation.data['phase']}")(operation, kept)
        except ArmError as wrong:
            self._fail(operation, kept, wrong.document())

    def _validating(self, operation: Operation, kept: dict[str, Any]) -> None:
        id = ids.parse(operation.target)
        assert id is not None
        properties = kept["document"]["properties"]
        read = {"template": operation.data["template"], "parameters": operation.data["parameters"]}
        parts = templates.read(read, id.scope)
        self._deployments.forecast.preflight(parts)
        stamp = self._state.stamp().translate({ord(one): None for one in "-:TZ."})[2:14]
        own = ResourceId(
            id.scope,
            "Microsoft.Resources",
            ("deployments",),
            (f"{id.name[:40]}-{stamp}{uuid.uuid4().hex[:6]}",),
        )
        caller = Caller(operation.data["caller"], id.key)
        body = {"location": kept["document"].get("location"), "properties": {"template": read["template"]}}
        child = self._deployments.begin(own, body, parts, caller, operation.id)
        properties.update(provisioningState="deploying", deploymentId=own.text)
        operation.data.update(
            phase="deploying", child=child.id, parts=[one.as_dict() for one in parts], template=None
        )
        operation.due = child.due

    def _deploying(self, operation: Operation, kept: dict[str, Any]) -> None:
        child = self._state.operations[operation.data["child"]]
        if child.status == "Running":
            operation.due = max(child.due, self._state.now() + 0.0)
            return
        properties = kept["document"]["properties"]
        parts = [Part.from_dict(one) for one in operation.data["parts"]]
        wanted = {part.key: part for part, _ in templates.flat(parts)}
        before = {one["id"].lower() for one in properties["resources"]}
        there = [key for key in wanted if self._state.find(key) is not None]
        operation.data["leaving"] = sorted(before - set(wanted))
        if child.status != "Succeeded":
            made = {key for key in there if self._state.resources[key].stack == operation.target.lower()}
            self._list(kept, before | made)
            inner = child.error or {"code": "DeploymentFailed", "message": ""}
            self._fail(
                operation,
                kept,
                {
                    "code": "DeploymentStackDeploymentFailed", "details": [inner],
                    "message": "The deployment stack's deployment failed. See inner errors for details.",
                },
            )  # fmt: skip
            return
        self._list(kept, {*there, *operation.data["leaving"]})
        properties["provisioningState"] = "updatingDenyAssignments"
        mode = properties["denySettings"].get("mode", "none")
        kept["denied"] = sorted(there) if mode != "none" else []
        kept["baseline"] = {
            key: {
                "document": copy.deepcopy(self._state.resources[key].document),
                "written": self._written(wanted[key]),
            }
            for key in there
        }
        operation.data.update(phase="deleting", left=operation.data["leaving"], rounds=0)
        operation.due = self._state.now()

    def _written(self, part: Part) -> dict[str, Any]:
        """What the template says of a part now that everything is there."""
        return {
            name: one
            for name, one in self._deployments.forecast.what_if([part])[0]["after"].items()
            if name != "apiVersion"
        }

    def _deleting(self, operation: Operation, kept: dict[str, Any]) -> None:
        """Delete or let go what has left the template, one round after the other until nothing moves."""
        properties = kept["document"]["properties"]
        properties["provisioningState"] = "deletingResources"
        caller = Caller(operation.data["caller"], operation.target.lower())
        done = self._leave(operation, kept, properties["actionOnUnmanage"], caller)
        if not done:
            return
        failed = properties["failedResources"]
        self._list(kept, {one["id"].lower() for one in properties["resources"]}, failed)
        if failed:
            self._fail(
                operation,
                kept,
                {
                    "code": "DeploymentStackDeleteResourcesFailed",
                    "message": "One or more resources could not be deleted. See failedResources.",
                    "details": [one["error"] for one in failed],
                },
            )
            return
        properties.update(
            provisioningState="succeeded", duration=f"PT{self._state.now() - operation.started:.7f}S"
        )
        kept["document"]["systemData"]["lastModifiedAt"] = self._state.stamp()
        operation.status, operation.data = "Succeeded", {}

    def _leave(
        self, operation: Operation, kept: dict[str, Any], action: dict[str, Any], caller: Caller
    ) -> bool:
        """Take one round of what leaves a stack; returns whether it is over."""
        state, properties = self._state, kept["document"]["properties"]
        errors: dict[str, dict[str, Any]] = {}
        moved = False
        for key in sorted(operation.data["left"], key=lambda one: -one.count("/")):
            resource = state.find(key)
            if resource is None:
                if key in operation.data.setdefault("started", []):
                    properties["deletedResources"].append({"id": operation.data["names"][key]})
                operation.data["left"] = [one for one in operation.data["left"] if one != key]
                properties["resources"] = [one for one in properties["resources"] if one["id"].lower() != key]
                moved = True
                continue
            if resource.operation:
                operation.due = max(state.operations[resource.operation].due, state.now())
                return False
            verb = "resourceGroups" if resource.type == ids.GROUP_TYPE else "resources"
            unsupported = resource.type.lower() in KEPT
            if action.get(verb) != "delete" or (
                unsupported and action.get("resourcesWithoutDeleteSupport", "detach") == "detach"
            ):
                resource.stack = ""
                properties["detachedResources"].append({"id": resource.id})
                properties["resources"] = [one for one in properties["resources"] if one["id"].lower() != key]
                operation.data["left"] = [one for one in operation.data["left"] if one != key]
                moved = True
                continue
            parsed = ids.parse(resource.id)
            assert parsed is not None
            operation.data.setdefault("names", {})[key] = resource.id
            operation.data.setdefault("started", [])
            try:
                if unsupported:
                    raise ArmError(405, "MethodNotAllowed", f"Resource {resource.id} cannot be deleted.")
                self._engine.delete(parsed, caller)
            except ArmError as wrong:
                errors[key] = wrong.document()
                continue
            operation.data["started"].append(key)
            moved = True
        if operation.data["left"] and moved:
            operation.due = state.now()
            return False
        for key in operation.data["left"]:
            found = state.find(key)
            if found is not None:
                properties["failedResources"].append({"id": found.id, "error": errors.get(key, {})})
        return True

    def _list(self, kept: dict[str, Any], keys: set[str], failed: list[dict[str, Any]] | None = None) -> None:
        """Write the list of managed resources."""
        deny = str(kept["document"]["properties"]["denySettings"].get("mode", "none"))
        broken = {one["id"].lower() for one in failed or ()}
        listed = []
        for key in sorted(keys):
            resource = self._state.find(key)
            if resource is not None:
                resource.stack = kept["document"]["id"].lower()
                status = "deleteFailed" if key in broken else "managed"
                listed.append({"id": resource.id, "status": status, "denyStatus": deny})
        kept["document"]["properties"]["resources"] = listed

    def _fail(self, operation: Operation, kept: dict[str, Any], error: dict[str, Any]) -> None:
        kept["document"]["properties"].update(provisioningState="failed", error=error)
        kept["document"]["systemData"]["lastModifiedAt"] = self._state.stamp()
        operation.status, operation.error, operation.data = "Failed", error, {}

    def delete(self, id: ResourceId, action: dict[str, str], caller: Caller) -> Operation | None:
        """Delete a stack, and what it manages where `action` says so. Raises ArmError."""
        kept = self._state.stacks.get(id.key)
        if kept is None:
            return None
        properties = kept["document"]["properties"]
        if properties["provisioningState"] not in _TERMINAL:
            raise ArmError(
                409,
                "DeploymentStackInNonTerminalState",
                f"The stack '{id.name}' is '{properties['provisioningState']}'.",
            )
        properties.update(provisioningState="deleting", failedResources=[])
        operation = self._state.begin("stack_delete", id.text, 2.0)
        operation.data = {
            "left": [one["id"].lower() for one in properties["resources"]],
            "action": action, "caller": caller.object_id,
        }  # fmt: skip
        return operation

    def _delete_step(self, operation: Operation) -> None:
        kept = self._state.stacks.get(operation.target.lower())
        if kept is None:
            operation.status = "Succeeded"
            return
        caller = Caller(operation.data["caller"], operation.target.lower())
        if not self._leave(operation, kept, operation.data["action"], caller):
            return
        failed = kept["document"]["properties"]["failedResources"]
        if failed:
            error = {
                "code": "DeploymentStackDeleteResourcesFailed", "details": [one["error"] for one in failed],
                "message": "One or more resources could not be deleted. See failedResources.",
            }  # fmt: skip
            self._fail(operation, kept, error)
            return
        del self._state.stacks[operation.target.lower()]
        operation.status, operation.data = "Succeeded", {}
