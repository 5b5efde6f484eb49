# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What-if of stacks: a result that is kept, also for a stack that is not there yet."""

from __future__ import annotations

import re
from typing import Any

from ironspan.lab.azure.arm import ids, stacks, templates
from ironspan.lab.azure.arm.deployments import Deployments
from ironspan.lab.azure.arm.errors import ArmError
from ironspan.lab.azure.arm.guards import Caller
from ironspan.lab.azure.arm.ids import ResourceId
from ironspan.lab.azure.arm.state import Operation, State

TYPE = "Microsoft.Resources/deploymentStacksWhatIfResults"
#: Results that a scope keeps.
MOST = 800
_INTERVAL = re.compile(r"P(?:(?P<D>\d+)D)?(?:T(?:(?P<H>\d+)H)?(?:(?P<M>\d+)M)?(?:(?P<S>\d+(?:\.\d+)?)S)?)?\Z")
_SECONDS = {"D": 86400, "H": 3600, "M": 60, "S": 1}


def seconds(interval: str) -> float:
    """Return an ISO 8601 duration in seconds. Raises ArmError."""
    found = _INTERVAL.match(interval)
    if found is None or not any(found.groups()):
        raise ArmError(
            400, "InvalidRequestContent", f"'{interval}' is no ISO 8601 duration.", target="retentionInterval"
        )
    return sum(float(found[unit] or 0) * factor for unit, factor in _SECONDS.items())


class StackWhatIfs:
    """The results of what-if of stacks."""

    def __init__(self, state: State, deployments: Deployments) -> None:
        self._state = state
        self._deployments = deployments

    def put(self, id: ResourceId, body: dict[str, Any], caller: Caller) -> tuple[Operation, bool]:
        """Begin a prediction. Raises ArmError."""
        stacks.check_body(body, stacks.WHAT_IF_MODEL, id.scope)
        properties = body["properties"]
        keep_s = seconds(str(properties["retentionInterval"]))
        stack = ids.parse(str(properties["deploymentStackResourceId"]))
        if stack is None or stack.type.lower() != ids.STACK_TYPE.lower():
            raise ArmError(
                400, "InvalidRequestContent",
                "deploymentStackResourceId is not the id of a deployment stack.",
                target="deploymentStackResourceId",
            )  # fmt: skip
        self._expire()
        new = id.key not in self._state.what_ifs
        if new and len(self._state.what_ifs) >= MOST:
            raise ArmError(
                409, "DeploymentStackWhatIfQuotaExceeded", f"A scope keeps at most {MOST} results."
            )
        kept = self._state.stacks.get(stack.key)
        document: dict[str, Any] = {
            "id": id.text, "name": id.name, "type": TYPE,
            "properties": {
                "deploymentStackResourceId": stack.text, "retentionInterval": properties["retentionInterval"],
                "actionOnUnmanage": properties["actionOnUnmanage"],
                "denySettings": properties["denySettings"],
                "provisioningState": "running",
                "deploymentScope": properties.get("deploymentScope") or id.scope,
            },
        }  # fmt: skip
        if kept is not None:
            document["properties"]["deploymentStackLastModified"] = kept["document"]["systemData"][
                "lastModifiedAt"
            ]
        for name in ("location", "tags"):
            if body.get(name) is not None:
                document[name] = body[name]
        result: dict[str, Any] = {}
        operation = self._state.begin("answer", id.text, 5.0)
        try:
            parts = templates.read(properties, id.scope)
            self._deployments.forecast.preflight(parts)
            result = self._changes(parts, properties, kept, stack.key)
            document["properties"]["provisioningState"] = "succeeded"
        except ArmError as wrong:
            document["properties"].update(provisioningState="failed", error=wrong.document())
            operation.data["error"] = wrong.document()
        self._state.what_ifs[id.key] = {
            "document": document, "changes": result,
            "until": self._state.now() + keep_s if keep_s <= 3 * 3600 else None
        }  # fmt: skip
        return operation, new

    def _expire(self) -> None:
        now = self._state.now()
        for key, one in list(self._state.what_ifs.items()):
            if one["until"] is not None and one["until"] < now:
                del self._state.what_ifs[key]

    def show(self, id: ResourceId, properties: bool) -> dict[str, Any]:
        """Return a result, with the changes of properties or of resources only. Raises ArmError."""
        self._expire()
        kept = self._state.what_ifs.get(id.key)
        if kept is None:
            raise ArmError(
                404, "DeploymentStackWhatIfResultNotFound", f"The what-if result '{id.name}' was not found."
            )
        changes = dict(kept["changes"])
        if changes and not properties:
            changes["resourceChanges"] = [
                {name: value for name, value in one.items() if name != "resourceConfigurationChanges"}
                for one in changes["resourceChanges"]
            ]
        document: dict[str, Any] = kept["document"]
        shown = {**document["properties"], **({"changes": changes, "diagnostics": []} if changes else {})}
        return {**document, "properties": shown}

    def _changes(
        self, parts: list[templates.Part], properties: dict[str, Any], kept: dict[str, Any] | None, stack: str
    ) -> dict[str, Any]:
        before = kept["document"]["properties"] if kept is not None else {}
        managed = {one["id"].lower(): one for one in before.get("resources", [])}
        deny = str(properties["denySettings"].get("mode", "none"))
        changes = []
        for one in self._deployments.forecast.what_if(parts, kept["baseline"] if kept is not None else None):
            own = managed.get(one["resourceId"].lower())
            changes.append(
                {
                    "id": one["resourceId"], "type": one["resourceType"], "apiVersion": one["apiVersion"],
                    **({"deploymentId": one["deploymentId"]} if one["deploymentId"] else {}),
                    "changeType": one["changeType"][0].lower() + one["changeType"][1:],
                    "changeCertainty": "potential" if one["potential"] else "definite",
                    "managementStatusChange": {
                        "before": "managed" if own else "unmanaged", "after": "managed",
                    },
                    "denyStatusChange": {"before": own["denyStatus"] if own else "none", "after": deny},
                    "resourceConfigurationChanges": {
                        **({"before": one["before"]} if one["before"] is not None else {}),
                        "after": one["after"], "delta": [_renamed(delta) for delta in one["delta"]],
                    },
                }
            )  # fmt: skip
        wanted = {part.key for part, _ in templates.flat(parts)}
        for key in sorted(set(managed) - wanted):
            found = self._state.find(key)
            if found is None:
                continue
            verb = "resourceGroups" if found.type == ids.GROUP_TYPE else "resources"
            delete = properties["actionOnUnmanage"].get(verb) == "delete"
            if found.type.lower() in stacks.KEPT:
                delete = False
            changes.append(
                {
                    "id": found.id, "type": found.type, "changeType": "delete" if delete else "detach",
                    "changeCertainty": "definite",
                    "managementStatusChange": {
                        "before": "managed", "after": "unknown" if delete else "unmanaged",
                    },
                    "denyStatusChange": {"before": managed[key]["denyStatus"], "after": "none"},
                    "resourceConfigurationChanges": {"before": found.document, "delta": []},
                }
            )  # fmt: skip
        now = before.get("denySettings")
        return {
            "resourceChanges": changes,
            "denySettingsChange": {
                **({"before": now} if now else {}), "after": properties["denySettings"],
                "delta": _deny_delta(now, properties),
            },
        }  # fmt: skip


def _deny_delta(before: dict[str, Any] | None, properties: dict[str, Any]) -> list[dict[str, Any]]:
    old, new = before or {}, properties["denySettings"]
    return [
        {
            "path": name,
            "changeType": ("modify" if name in old else "create") if name in new else "delete",
            **({"before": old[name]} if name in old else {}), **({"after": new[name]} if name in new else {}),
        }
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]  # fmt: skip


def _renamed(delta: dict[str, Any]) -> dict[str, Any]:
    """A property change of a deployment's what-if as a stack's says it."""
    kind = str(delta["propertyChangeType"])
    found = {name: one for name, one in delta.items() if name not in ("propertyChangeType", "children")}
    found["changeType"] = kind[0].lower() + kind[1:]
    if "children" in delta:
        found["children"] = [_renamed(one) for one in delta["children"]]
    return found
