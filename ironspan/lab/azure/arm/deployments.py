# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Deployments: validated, predicted, carried out part by part, and what each part came to."""

from __future__ import annotations

import copy
import hashlib
import json
import uuid
from typing import Any

from ironspan.lab.azure.arm import expressions, ids, kinds
from ironspan.lab.azure.arm.engine import Engine
from ironspan.lab.azure.arm.errors import ArmError
from ironspan.lab.azure.arm.forecast import Forecast
from ironspan.lab.azure.arm.guards import Caller, check_place
from ironspan.lab.azure.arm.ids import ResourceId
from ironspan.lab.azure.arm.state import Operation, State, written_time
from ironspan.lab.azure.arm.templates import Part

#: Deployments that a scope keeps.
MOST = 800
_SEE = (
    "Please list deployment operations for details. Please see https://aka.ms/arm-deployment-operations "
    "for usage details."
)
_TRIES = 6
_REASONS = {404: "NotFound", 403: "Forbidden", 409: "Conflict", 429: "TooManyRequests"}


class Deployments:
    """Carries out templates."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.forecast = Forecast(engine)
        engine.steps["deployment"] = self._step

    @property
    def _state(self) -> State:
        return self._engine.state

    def begin(
        self, id: ResourceId, body: dict[str, Any], parts: list[Part], caller: Caller, parent: str = ""
    ) -> Operation:
        """Start a deployment. Raises ArmError."""
        state = self._state
        fault = self._engine.faults.choose("put", id)
        if fault is not None:
            from ironspan.lab.azure.arm.faults import error

            raise error(fault, id)
        there = state.deployments.get(id.key)
        if there is not None and there["document"]["properties"]["provisioningState"] in (
            "Accepted",
            "Running",
        ):
            raise ArmError(
                409,
                "DeploymentActive",
                f"Unable to edit or replace deployment '{id.name}': previous deployment from "
                f"'{there['document']['properties']['timestamp']}' is still active.",
            )
        kept = [key for key in state.deployments if key.rpartition("/providers/")[0] == id.scope.lower()]
        if there is None and len(kept) >= MOST:
            raise ArmError(
                409, "DeploymentQuotaExceeded",
                f"Creating the deployment '{id.name}' would exceed the quota of '{MOST}'. The current "
                f"deployment count is '{len(kept)}'. Please delete some deployments before creating a new "
                "one.",
            )  # fmt: skip
        properties = body.get("properties") or {}
        text = json.dumps(properties.get("template"), sort_keys=True)
        document: dict[str, Any] = {
            "id": id.text, "name": id.name, "type": ids.DEPLOYMENT_TYPE,
            "properties": {
                "provisioningState": "Accepted", "mode": properties.get("mode", "Incremental"),
                "correlationId": str(uuid.uuid4()), "timestamp": state.stamp(), "duration": "PT0S",
                "templateHash": str(int(hashlib.sha256(text.encode()).hexdigest()[:16], 16)),
                "dependencies": [], "providers": [],
            },
        }  # fmt: skip
        for name in ("location", "tags"):
            if body.get(name):
                document[name] = body[name]
        operation = state.begin("deployment", id.text, 1.0)
        operation.data = {
            "parts": [one.as_dict() for one in parts],
            "states": {one.key: {"state": "Waiting"} for one in parts},
            "caller": [caller.object_id, caller.stack],
            "parent": parent,
        }
        state.deployments[id.key] = {"document": document, "operations": [], "operation": operation.id}
        return operation

    def _step(self, operation: Operation) -> None:
        state = self._state
        kept = state.deployments.get(operation.target.lower())
        if kept is None:  # its resource group is gone
            operation.status = "Canceled"
            return None
        parts = {one["id"].lower(): Part.from_dict(one) for one in operation.data["parts"]}
        states: dict[str, dict[str, Any]] = operation.data["states"]
        caller = Caller(*operation.data["caller"])
        if kept["document"]["properties"]["provisioningState"] == "Accepted":
            kept["document"]["properties"]["provisioningState"] = "Running"
        self._collect(states)
        for key, part in parts.items():
            if states[key]["state"] != "Waiting" or states[key].get("again", 0) > state.now():
                continue
            before = [states[one]["state"] for one in part.waits]
            if any(one in ("Failed", "Skipped", "Canceled") for one in before):
                states[key]["state"] = "Skipped"
            elif all(one == "Succeeded" for one in before):
                self._start(part, states[key], caller, operation)
        self._collect(states)
        _record(kept, parts, states)
        running = [one for one in states.values() if one["state"] == "Running"]
        waiting = [
            one
            for key, one in states.items()
            if one["state"] == "Waiting" and self._can_start(parts[key], states)
        ]
        if running or waiting:
            ends = [state.operations[one["operation"]].due for one in running]
            ends += [one.get("again", 0.0) for one in waiting]
            operation.due = max(min(ends), operation.due)
            return None
        if any(one["state"] == "Waiting" for one in states.values()):
            return self._step(operation)  # parts whose turn it is not any more
        self._end(operation, kept, parts, states)
        return None

    @staticmethod
    def _can_start(part: Part, states: dict[str, dict[str, Any]]) -> bool:
        return all(states[one]["state"] == "Succeeded" for one in part.waits)

    def _collect(self, states: dict[str, dict[str, Any]]) -> None:
        for one in states.values():
            if one["state"] == "Running":
                ended = self._state.operations.get(one["operation"])
                if ended is not None and ended.status != "Running":
                    one["state"] = ended.status
                    one["error"] = ended.error
                    one["ended"] = self._state.now()

    def _start(self, part: Part, own: dict[str, Any], caller: Caller, operation: Operation) -> None:
        id = ids.parse(part.id)
        assert id is not None
        own.setdefault("started", self._state.now())
        try:
            if part.nested is not None:
                check_place(self._state, kinds.find(part.type), id)
                child = self.begin(id, part.body, part.nested, caller, operation.id)
                own.update(state="Running", operation=child.id)
                return
            body = expressions.evaluate(copy.deepcopy(part.body), self.forecast.look)
            resource, child_, new = self._engine.write(id, part.version, body, caller)
        except ArmError as wrong:
            own["tries"] = own.get("tries", 0) + 1
            again = wrong.status == 429 or wrong.status >= 500 or wrong.code == "AnotherOperationInProgress"
            if again and own["tries"] < _TRIES:  # the resource manager itself tries these again
                own["again"] = self._state.now() + max(self._state.settings.pace, 0.0)
                return
            own.update(state="Failed", error=wrong.document(), status=wrong.status, ended=self._state.now())
            return
        own["new"] = new
        if caller.stack:
            resource.stack = caller.stack
        if child_ is None:
            own.update(state="Succeeded", ended=self._state.now())
        else:
            own.update(state="Running", operation=child_.id)

    def _end(
        self,
        operation: Operation,
        kept: dict[str, Any],
        parts: dict[str, Part],
        states: dict[str, dict[str, Any]],
    ) -> None:
        properties = kept["document"]["properties"]
        failed = [(parts[key], one) for key, one in states.items() if one["state"] == "Failed"]
        canceled = any(one["state"] == "Canceled" for one in states.values())
        made = [
            parts[key].id
            for key, one in states.items()
            if one["state"] == "Succeeded" and parts[key].nested is None
        ]
        for part in parts.values():
            if part.nested is not None:
                inner = self._state.deployments.get(part.key)
                made += [
                    one["id"]
                    for one in (inner or {"document": {"properties": {}}})["document"]["properties"].get(
                        "outputResources", []
                    )
                ]
        properties.update(
            timestamp=self._state.stamp(), duration=f"PT{self._state.now() - operation.started:.7f}S",
            outputResources=[{"id": one} for one in made],
        )  # fmt: skip
        if failed:
            details = [{**(one["error"] or {}), "target": part.id} for part, one in failed]
            operation.error = {
                "code": "DeploymentFailed", "target": kept["document"]["id"],
                "message": f"At least one resource deployment operation failed. {_SEE}", "details": details,
            }  # fmt: skip
            operation.status = properties["provisioningState"] = "Failed"
            properties["error"] = operation.error
        else:
            operation.status = properties["provisioningState"] = "Canceled" if canceled else "Succeeded"
            if canceled:
                operation.error = {"code": "DeploymentCanceled", "message": "The deployment was canceled."}
        operation.data = {"parent": operation.data["parent"]}
        self.wake(operation)

    def wake(self, operation: Operation) -> None:
        """Let what waits for an operation look at once."""
        for one in self._state.operations.values():
            if one.status == "Running" and one.id == operation.data.get("parent"):
                one.due = self._state.now()

    def cancel(self, id: ResourceId) -> None:
        """Start no further part; what runs runs to its end. Raises ArmError."""
        kept = self._state.deployments.get(id.key)
        if kept is None:
            raise ArmError(404, "DeploymentNotFound", f"Deployment '{id.name}' could not be found.")
        operation = self._state.operations[kept["operation"]]
        if operation.status != "Running":
            raise ArmError(
                409,
                "DeploymentCannotBeCancelled",
                f"The deployment '{id.name}' has ended and cannot be canceled.",
            )
        for key, one in operation.data["states"].items():
            if one["state"] == "Waiting":
                one["state"] = "Canceled"
            elif one["state"] == "Running" and key in self._state.deployments:
                nested = ids.parse(key)
                inner = self._state.operations[self._state.deployments[key]["operation"]]
                if nested is not None and inner.status == "Running":
                    self.cancel(nested)
        operation.due = self._state.now()


def _record(kept: dict[str, Any], parts: dict[str, Part], states: dict[str, dict[str, Any]]) -> None:
    """Write down the operations of a deployment as they are listed."""
    listed = []
    for key, one in states.items():
        if "started" not in one or one["state"] in ("Waiting", "Skipped"):
            continue
        part = parts[key]
        parsed = ids.parse(part.id)
        assert parsed is not None
        number = hashlib.sha256(key.encode()).hexdigest()[:16].upper()
        code = {"Succeeded": "OK" if not one.get("new") else "Created", "Running": "Accepted"}.get(
            one["state"], ""
        )
        properties: dict[str, Any] = {
            "provisioningOperation": "Create", "provisioningState": one["state"],
            "timestamp": written_time(one.get("ended", one["started"])),
            "duration": f"PT{one.get('ended', one['started']) - one['started']:.7f}S",
            "statusCode": code or _REASONS.get(one.get("status", 0), "BadRequest"),
            "targetResource": {
                "id": part.id, "resourceType": part.type, "resourceName": "/".join(parsed.names),
                "apiVersion": part.version,
            },
        }  # fmt: skip
        if one["state"] == "Failed":
            properties["statusMessage"] = {"status": "Failed", "error": one["error"]}
        listed.append(
            {
                "id": f"{kept['document']['id']}/operations/{number}",
                "operationId": number,
                "properties": properties,
            }
        )
    kept["operations"] = listed
