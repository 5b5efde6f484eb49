# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is asked of one resource besides reading and writing: power, run command, policies, gateways."""

from __future__ import annotations

from typing import Any

from ironspan.lab.azure.arm import ids, kinds
from ironspan.lab.azure.arm.engine import Engine
from ironspan.lab.azure.arm.errors import ArmError, not_found
from ironspan.lab.azure.arm.faults import error as fault_error
from ironspan.lab.azure.arm.ids import ResourceId
from ironspan.lab.azure.arm.machines import described
from ironspan.lab.azure.arm.rules.compute import MACHINE
from ironspan.lab.azure.arm.state import Resource
from ironspan.lab.azure.arm.web import Answer, Asked

_POWER = ("start", "poweroff", "deallocate", "restart", "reapply", "redeploy")
#: Characters of output that run command gives back.
_MOST_OUTPUT = 4096
_POLICIES = "microsoft.storage/storageaccounts/blobservices/containers/immutabilitypolicies"


class Actions:
    """Answers requests for actions on resources."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def answer(self, asked: Asked) -> Answer | None:
        """Answer a request; None when it is no action."""
        above, _, action = asked.path.rpartition("/")
        id = ids.parse(above)
        if id is None or "/providers/" not in above:
            return None
        action = action.lower()
        if asked.method == "GET" and action == "instanceview" and id.type.lower() == MACHINE.lower():
            return self._instance_view(id)
        if asked.method != "POST":
            return None
        resource = self._engine.state.find(id.text)
        if resource is None:
            raise not_found(id.text)
        kinds.check_version(kinds.find(id.type), asked.version)
        if id.type.lower() == MACHINE.lower():
            return self._machine(asked, id, resource, action)
        if id.type.lower() == _POLICIES and action in ("lock", "extend"):
            return self._policy(asked, resource, action)
        if action == "getbgppeerstatus":
            return self._finished(asked, id, {"value": []})
        raise ArmError(404, "ResourceNotFound", f"The action {asked.path} was not found.")

    def _finished(
        self, asked: Asked, id: ResourceId, result: Any, seconds: float = 3.0, command: bool = False
    ) -> Answer:
        state = self._engine.state
        operation = state.begin("answer", id.text, seconds, result=result, output=result, command=command)
        return Answer(202, None, asked.polled(operation, True, state.settings.retry_after_s))

    def _machine(self, asked: Asked, id: ResourceId, resource: Resource, action: str) -> Answer:
        state = self._engine.state
        if action in _POWER:
            operation = self._engine.power(id, action)
            return Answer(202, None, asked.polled(operation, True, state.settings.retry_after_s))
        if action == "runcommand":
            return self._run_command(asked, id, resource)
        if action == "simulateeviction":
            if str(resource.properties.get("priority", "")).lower() != "spot":
                raise ArmError(409, "OperationNotAllowed", f"VM {id.name} is no spot machine.")
            self._engine.power(id, "deallocate")
            return Answer(204, None)
        raise ArmError(404, "ResourceNotFound", f"The action {asked.path} was not found.")

    def _run_command(self, asked: Asked, id: ResourceId, resource: Resource) -> Answer:
        fault = self._engine.faults.choose("action", id)
        if fault is not None:
            raise fault_error(fault, id)
        if asked.body.get("commandId") != "RunShellScript":
            raise ArmError(
                400,
                "InvalidParameter",
                "The lab knows the command 'RunShellScript' only.",
                target="commandId",
            )
        if resource.power != "running":
            raise ArmError(409, "OperationNotAllowed", f"VM {id.name} is not running.")
        running = [one for one in self._engine.state.operations.values() if one.status == "Running"]
        if any(one.data.get("command") and ids.same(one.target, resource.id) for one in running):
            message = "Run command extension execution is in progress. Please wait for completion."
            raise ArmError(409, "Conflict", message)
        # Whatever the script is, it is answered with what it is for: the machine's public host keys.
        keys = "\n".join(self._engine.driver.host_keys(described(self._engine.state, resource)))
        value = [
            _status("ComponentStatus/StdOut/succeeded", keys[:_MOST_OUTPUT]),
            _status("ComponentStatus/StdErr/succeeded", ""),
        ]
        return self._finished(asked, id, {"value": value}, 10.0, command=True)

    def _instance_view(self, id: ResourceId) -> Answer:
        resource = self._engine.state.find(id.text)
        if resource is None:
            raise not_found(id.text)
        state = str(resource.properties.get("provisioningState", "Succeeded")).lower()
        statuses = [
            {"code": f"ProvisioningState/{state}", "level": "Info", "displayStatus": f"Provisioning {state}"}
        ]
        if resource.power:
            shown = f"VM {resource.power}"
            statuses.append({"code": f"PowerState/{resource.power}", "level": "Info", "displayStatus": shown})
        return Answer(
            200, {"computerName": resource.document["name"], "osName": "linux", "statuses": statuses}
        )

    def _policy(self, asked: Asked, resource: Resource, action: str) -> Answer:
        properties = resource.properties
        if action == "lock":
            properties["state"] = "Locked"
        elif properties.get("state") != "Locked":
            raise ArmError(
                409, "ContainerImmutabilityPolicyNotLocked", "Only a locked policy can be extended."
            )
        else:
            days = int(asked.body.get("properties", {}).get("immutabilityPeriodSinceCreationInDays", 0))
            if days < int(properties.get("immutabilityPeriodSinceCreationInDays", 0)):
                raise ArmError(
                    409, "ContainerImmutabilityPolicyCannotBeShortened", "The period cannot become shorter."
                )
            properties["immutabilityPeriodSinceCreationInDays"] = days
        return Answer(200, resource.document)


def _status(code: str, message: str) -> dict[str, str]:
    return {"code": code, "level": "Info", "displayStatus": "Provisioning succeeded", "message": message}
