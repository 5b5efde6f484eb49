# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The paths of what has a template: deployments, stacks and what-if results."""

from __future__ import annotations

import re
from typing import Any

from ironspan.lab.azure.arm import ids, kinds, schema, stacks, templates
from ironspan.lab.azure.arm.deployments import Deployments
from ironspan.lab.azure.arm.engine import Engine
from ironspan.lab.azure.arm.errors import ArmError
from ironspan.lab.azure.arm.ids import ResourceId
from ironspan.lab.azure.arm.stack_whatif import StackWhatIfs
from ironspan.lab.azure.arm.stacks import Stacks
from ironspan.lab.azure.arm.state import State
from ironspan.lab.azure.arm.web import Answer, Asked

#: The scope; the type; the name; what follows. One call of the SDK has no "providers/Microsoft.Resources".
_PATH = re.compile(
    r"(?P<scope>/subscriptions/[^/]+(?:/resourceGroups/[^/]+)?)(?:/providers/Microsoft\.Resources)?"
    r"/(?P<type>deployments|deploymentStacks|deploymentStacksWhatIfResults)(?:/(?P<name>[^/]+)(?P<rest>/.*)?)?\Z",
    re.IGNORECASE,
)
_MODELS = "azure.mgmt.resource.deployments.models"


class Templated:
    """Answers requests about deployments, stacks and what-if results."""

    def __init__(
        self, engine: Engine, deployments: Deployments, stacks_: Stacks, what_ifs: StackWhatIfs
    ) -> None:
        self._engine = engine
        self._deployments = deployments
        self._stacks = stacks_
        self._what_ifs = what_ifs

    @property
    def _state(self) -> State:
        return self._engine.state

    def answer(self, asked: Asked) -> Answer | None:
        """Answer a request; None when it is about something else."""
        found = _PATH.match(asked.path)
        if found is None:
            return None
        group = ids.parse(found["scope"])
        if group is not None and self._state.find(group.text) is None:
            raise ArmError(404, "ResourceGroupNotFound", f"Resource group '{group.name}' could not be found.")
        kind = found["type"].lower()
        written = {"deployments": "deployments", "deploymentstacks": "deploymentStacks"}.get(
            kind, "deploymentStacksWhatIfResults"
        )
        if kind == "deployments":
            kinds.check_version(kinds.find(ids.DEPLOYMENT_TYPE), asked.version)
        elif asked.version != stacks.VERSION:
            raise ArmError(
                400, "NoRegisteredProviderFound",
                f"No registered resource provider found for API version '{asked.version}' for type "
                f"'{written}'. The supported api-versions are '{stacks.VERSION}'.",
            )  # fmt: skip
        if not found["name"]:
            return self._list(asked, kind, found["scope"])
        id = ResourceId(found["scope"], "Microsoft.Resources", (written,), (found["name"],))
        rest = (found["rest"] or "").lower()
        if kind == "deployments":
            return self._deployment(asked, id, rest)
        return self._stack(asked, id, rest) if kind == "deploymentstacks" else self._result(asked, id, rest)

    def _list(self, asked: Asked, kind: str, scope: str) -> Answer:
        kept = {"deployments": self._state.deployments, "deploymentstacks": self._state.stacks}.get(
            kind, self._state.what_ifs
        )
        value = [
            one["document"] for key, one in kept.items() if key.rpartition("/providers/")[0] == scope.lower()
        ]
        return Answer(200, {"value": value})

    def _wait(
        self, asked: Asked, operation: Any, location: bool = False, status: bool = True
    ) -> dict[str, str]:
        return asked.polled(operation, location, self._state.settings.retry_after_s, status)

    # -- deployments -----------------------------------------------------------------------------------------

    def _read(self, asked: Asked, id: ResourceId, model: str) -> list[templates.Part]:
        body = asked.body
        wrong = schema.problems(f"{_MODELS}:{model}", body)
        if wrong:
            raise ArmError(400, wrong[0].code, wrong[0].message, target=wrong[0].path)
        if "/resourcegroups/" not in id.scope.lower() and not body.get("location"):
            raise ArmError(400, "LocationRequired", "The location property is required for this deployment.")
        if body["properties"].get("mode") != "Incremental":
            raise ArmError(400, "InvalidDeployment", "The lab's deployments are 'Incremental'.")
        return templates.read(body["properties"], id.scope)

    def _deployment(self, asked: Asked, id: ResourceId, rest: str) -> Answer:
        kept = self._state.deployments.get(id.key)
        match (asked.method, rest):
            case ("PUT", ""):
                parts = self._read(asked, id, "Deployment")
                self._deployments.forecast.preflight(parts)
                operation = self._deployments.begin(id, asked.body, parts, asked.caller)
                document = self._state.deployments[id.key]["document"]
                return Answer(201 if kept is None else 200, document, self._wait(asked, operation))
            case ("POST", "/validate"):
                parts = self._read(asked, id, "Deployment")
                self._deployments.forecast.preflight(parts)
                return Answer(200, self._validated(asked, id, parts))
            case ("POST", "/whatif"):
                return self._what_if(asked, id)
            case ("HEAD", ""):
                return Answer(204 if kept is not None else 404, None)
        if kept is None:
            if (asked.method, rest) == ("DELETE", ""):
                return Answer(204, None)
            raise ArmError(404, "DeploymentNotFound", f"Deployment '{id.name}' could not be found.")
        match (asked.method, rest):
            case ("GET", ""):
                return Answer(200, kept["document"])
            case ("POST", "/cancel"):
                self._deployments.cancel(id)
                return Answer(204, None)
            case ("GET", "/operations"):
                return Answer(200, {"value": kept["operations"]})
            case ("DELETE", ""):
                if kept["document"]["properties"]["provisioningState"] in ("Accepted", "Running"):
                    raise ArmError(409, "DeploymentActive", f"The deployment '{id.name}' is still active.")
                del self._state.deployments[id.key]
                done = self._state.begin("answer", id.text, 1.0)
                return Answer(202, None, self._wait(asked, done, True, False))
        for one in kept["operations"]:
            if asked.method == "GET" and rest == f"/operations/{one['operationId']}".lower():
                return Answer(200, one)
        raise ArmError(404, "ResourceNotFound", f"The resource {asked.path} was not found.")

    def _validated(self, asked: Asked, id: ResourceId, parts: list[templates.Part]) -> dict[str, Any]:
        return {
            "id": id.text, "name": id.name, "type": ids.DEPLOYMENT_TYPE,
            "properties": {
                "provisioningState": "Succeeded", "mode": "Incremental", "timestamp": self._state.stamp(),
                "validatedResources": [{"id": part.id} for part, _ in templates.flat(parts)],
            },
        }  # fmt: skip

    def _what_if(self, asked: Asked, id: ResourceId) -> Answer:
        model = "DeploymentWhatIf" if "/resourcegroups/" in id.scope.lower() else "ScopedDeploymentWhatIf"
        parts = self._read(asked, id, model)
        form = (asked.body["properties"].get("whatIfSettings") or {}).get(
            "resultFormat", "FullResourcePayloads"
        )
        changes: list[dict[str, Any]] = []
        potential: list[dict[str, Any]] = []
        for one in self._deployments.forecast.what_if(parts):
            shown: dict[str, Any] = {"resourceId": one["resourceId"], "changeType": one["changeType"]}
            if one["deploymentId"]:
                shown["deploymentId"] = one["deploymentId"]
            if form == "ResourceIdOnly":
                shown["changeType"] = "Deploy"
            else:
                shown.update({name: one[name] for name in ("before", "after", "delta") if one[name]})
            (potential if one["potential"] else changes).append(shown)
        for there in self._deployments.forecast.ignored(parts, id.scope):
            changes.append(
                {
                    "resourceId": there.id,
                    "changeType": "Ignore",
                    "before": there.document,
                    "after": there.document,
                }
            )
        result = {
            "status": "Succeeded",
            "properties": {"changes": changes, "potentialChanges": potential, "diagnostics": []},
        }
        operation = self._state.begin("answer", id.text, 3.0, result=result)
        return Answer(202, None, self._wait(asked, operation, True, False))

    # -- stacks ----------------------------------------------------------------------------------------------

    def _stack(self, asked: Asked, id: ResourceId, rest: str) -> Answer:
        kept = self._state.stacks.get(id.key)
        match (asked.method, rest):
            case ("PUT", ""):
                operation, new = self._stacks.put(id, asked.body, asked.caller)
                return Answer(
                    201 if new else 200, self._state.stacks[id.key]["document"], self._wait(asked, operation)
                )
            case ("POST", "/validate"):
                return self._validate_stack(asked, id)
            case ("DELETE", ""):
                action = {
                    name[:1].lower() + name[1:]: asked.query.get(f"unmanageAction.{name}", "detach")
                    for name in (
                        "Resources",
                        "ResourceGroups",
                        "ManagementGroups",
                        "ResourcesWithoutDeleteSupport",
                    )
                }
                deleting = self._stacks.delete(id, action, asked.caller)
                if deleting is None:
                    return Answer(204, None)
                return Answer(202, None, self._wait(asked, deleting, True))
        if kept is None:
            raise ArmError(
                404, "DeploymentStackNotFound", f"The Deployment Stack '{id.name}' could not be found."
            )
        if (asked.method, rest) == ("GET", ""):
            return Answer(200, kept["document"])
        raise ArmError(404, "ResourceNotFound", f"The resource {asked.path} was not found.")

    def _validate_stack(self, asked: Asked, id: ResourceId) -> Answer:
        stacks.check_body(asked.body, stacks.MODEL, id.scope)
        parts = templates.read(asked.body["properties"], id.scope)
        self._deployments.forecast.preflight(parts)
        result = {
            "id": id.text, "name": id.name, "type": ids.STACK_TYPE,
            "properties": {
                "actionOnUnmanage": asked.body["properties"]["actionOnUnmanage"],
                "denySettings": asked.body["properties"]["denySettings"],
                "validatedResources": [{"id": part.id} for part, _ in templates.flat(parts)],
            },
        }  # fmt: skip
        operation = self._state.begin("answer", id.text, 3.0, result=result)
        return Answer(202, None, self._wait(asked, operation, True, False))

    def _result(self, asked: Asked, id: ResourceId, rest: str) -> Answer:
        match (asked.method, rest):
            case ("PUT", ""):
                operation, new = self._what_ifs.put(id, asked.body, asked.caller)
                return Answer(
                    201 if new else 200, self._what_ifs.show(id, False), self._wait(asked, operation)
                )
            case ("GET", ""):
                return Answer(200, self._what_ifs.show(id, False))
            case ("POST", "/whatif"):
                result = self._what_ifs.show(id, True)
                done = self._state.begin("answer", id.text, 1.0, result=result)
                return Answer(202, None, self._wait(asked, done, True, False))
            case ("DELETE", ""):
                gone = self._state.what_ifs.pop(id.key, None)
                return Answer(200 if gone is not None else 204, None)
        raise ArmError(404, "ResourceNotFound", f"The resource {asked.path} was not found.")
