# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The resource manager's paths: which request is which, and the answers, codes and headers of each."""

from __future__ import annotations

import json
import re
import secrets
from pathlib import Path
from typing import Any

from ironspan.lab.azure import settings
from ironspan.lab.azure.arm import ids, kinds, machines
from ironspan.lab.azure.arm.actions import Actions
from ironspan.lab.azure.arm.around import Around
from ironspan.lab.azure.arm.deployments import Deployments
from ironspan.lab.azure.arm.engine import Engine
from ironspan.lab.azure.arm.errors import ArmError, not_found
from ironspan.lab.azure.arm.guards import Caller
from ironspan.lab.azure.arm.ids import ResourceId
from ironspan.lab.azure.arm.rules.access import ASSIGNMENT
from ironspan.lab.azure.arm.rules.common import named
from ironspan.lab.azure.arm.rules.compute import MACHINE
from ironspan.lab.azure.arm.rules.interfaces import members
from ironspan.lab.azure.arm.schedules import Schedules, expire
from ironspan.lab.azure.arm.stack_whatif import StackWhatIfs
from ironspan.lab.azure.arm.stacks import Stacks
from ironspan.lab.azure.arm.state import Operation, Resource, State
from ironspan.lab.azure.arm.subscription import Subscription
from ironspan.lab.azure.arm.templated import Templated
from ironspan.lab.azure.arm.web import Answer, Asked
from ironspan.lab.azure.http import Request, Response

_PRINCIPAL = re.compile(r"(?:assignedTo\(|principalId eq )'(?P<id>[^']+)'", re.IGNORECASE)


class Arm:
    """Everything of the resource manager but who may ask."""

    def __init__(self, folder: Path, driver: machines.Driver | None = None) -> None:
        self.state = State(folder)
        self.driver = driver or machines.Recorder()
        self.engine = Engine(self.state, self.driver)
        self.deployments = Deployments(self.engine)
        self.stacks = Stacks(self.engine, self.deployments)
        what_ifs = StackWhatIfs(self.state, self.deployments)
        self._templated = Templated(self.engine, self.deployments, self.stacks, what_ifs)
        self._subscription = Subscription(self.state)
        self._actions = Actions(self.engine)
        self._schedules = Schedules(self.state)
        self._around = Around(self.state)

    def resume(self) -> None:
        """Start the machines that ran when the process ended; the driver leaves those alone that still do."""
        for one in self.state.of_type(MACHINE):
            if one.power == "running":
                self.driver.start(machines.described(self.state, one))

    def tick(self) -> None:
        """Do what is due; called now and then while something runs."""
        if any(one.status == "Running" for one in self.state.operations.values()) and self.engine.advance():
            self.state.save()

    def with_assignments(self, answer: dict[str, Any], request: Request) -> dict[str, Any]:
        """Return an answer about the lab's own roles with what the estate has of the same."""
        if "value" not in answer:
            return answer
        scope = request.path.lower().partition("/providers/microsoft.authorization/")[0]
        found = assignments(self.state, scope, request.query.get("$filter", ""))
        return {"value": [*answer["value"], *found]}

    def serve(self, request: Request, text: bytes, object_id: str) -> Response:
        """Answer a request of somebody who may manage the subscription.

        Args:
            request: The request.
            text: Its body.
            object_id: `oid` of the caller's token.
        """
        try:
            body = json.loads(text) if text.strip() else {}
        except ValueError as wrong:
            return _refused(
                ArmError(400, "InvalidRequestContent", f"The request content was invalid: {wrong}")
            )
        if not isinstance(body, dict):
            return _refused(
                ArmError(400, "InvalidRequestContent", "The request content was invalid: no object.")
            )
        moved = self.engine.advance() | expire(self.state)
        host = request.headers.get("host", settings.MANAGEMENT_HOST)
        asked = Asked(
            request.method,
            request.path.rstrip("/"),
            request.query,
            body,
            f"https://{host}",
            Caller(object_id),
        )
        try:
            answer = self._answer(asked)
        except ArmError as wrong:
            return _refused(wrong)
        finally:
            if moved or asked.method not in ("GET", "HEAD"):
                self.state.save()
        return _response(answer)

    def _answer(self, asked: Asked) -> Answer:
        subscription = asked.path.split("/")[2] if asked.path.lower().startswith("/subscriptions/") else ""
        if subscription and subscription.lower() != settings.SUBSCRIPTION:
            raise ArmError(
                404, "SubscriptionNotFound", f"The subscription '{subscription}' could not be found."
            )
        for part in (self._subscription, self._schedules, self._around, self._templated, self._actions):
            answer = part.answer(asked)
            if answer is not None:
                return answer
        return self._resource(asked)

    # -- resources -------------------------------------------------------------------------------------------

    def _resource(self, asked: Asked) -> Answer:
        id = ids.parse(asked.path)
        if id is None:
            return self._list(asked)
        kind = kinds.find(id.type)
        if asked.method in ("GET", "HEAD"):
            return self._get(asked, id, kind)
        if asked.method in ("PUT", "PATCH"):
            resource, operation, new = self.engine.write(
                id, asked.version, asked.body, asked.caller, asked.method == "PATCH"
            )
            status = 200 if asked.method == "PATCH" else (kind.created if new else kind.updated)
            shown = self._shown(resource)
            if id.parent is not None and resource.key != id.key:  # a part of it was written
                shown = self.state.part(id.text) or shown
            return Answer(status, shown, self._headers(asked, operation, False))
        if asked.method == "DELETE":
            return self._delete(asked, id, kind)
        raise ArmError(405, "MethodNotAllowed", f"{asked.method} is not allowed here.")

    def _get(self, asked: Asked, id: ResourceId, kind: kinds.Kind) -> Answer:
        found = self.state.find(id.text)
        late = (
            found is not None
            and kind.provider == "Microsoft.Authorization"
            and found.visible_at > self.state.now()
        )
        kinds.check_version(kind, asked.version, "")
        if asked.method == "HEAD":
            return Answer(204 if found is not None else 404, None)
        if found is not None and not late:
            return Answer(200, self._shown(found))
        part = self.state.part(id.text)
        if part is None or late:
            if kind.type == ids.GROUP_TYPE:
                raise ArmError(
                    404, "ResourceGroupNotFound", f"Resource group '{id.name}' could not be found."
                )
            raise not_found(id.text)
        return Answer(200, part)

    def _delete(self, asked: Asked, id: ResourceId, kind: kinds.Kind) -> Answer:
        group = kind.type == ids.GROUP_TYPE
        try:
            operation = self.engine.delete(id, asked.caller)
        except ArmError as wrong:
            if wrong.code == "ResourceNotFound" and not group:
                return Answer(204, None)
            if wrong.code == "ResourceNotFound":
                raise ArmError(
                    404, "ResourceGroupNotFound", f"Resource group '{id.name}' could not be found."
                ) from None
            raise
        if operation is None:
            return Answer(200, None)
        headers = self._headers(asked, operation, True)
        if group:
            headers.pop("azure-asyncoperation", None)
        return Answer(202, None, headers)

    def _headers(self, asked: Asked, operation: Operation | None, location: bool) -> dict[str, str]:
        return asked.polled(operation, location, self.state.settings.retry_after_s)

    def _shown(self, resource: Resource) -> dict[str, Any]:
        if resource.type == "Microsoft.Network/loadBalancers":
            for pool in named(resource.properties.get("backendAddressPools")):
                pool["properties"]["backendIPConfigurations"] = members(self.state, str(pool["id"]))
        return resource.document

    def _list(self, asked: Asked) -> Answer:
        """Answer a GET of .../providers/NAMESPACE/TYPE: of a group, the subscription or a resource."""
        scope, _, rest = asked.path.rpartition("/providers/")
        parts = rest.split("/")
        if asked.method != "GET" or not scope or len(parts) % 2:
            raise not_found(asked.path)
        type = "/".join((parts[0], *parts[1::2]))
        kind = kinds.find(type)
        kinds.check_version(kind, asked.version, "")
        above = f"{scope}/providers/{'/'.join(parts[:-1])}" if len(parts) > 2 else scope
        own = ids.parse(above)
        if kind.type == ASSIGNMENT:
            return Answer(
                200, {"value": assignments(self.state, above.lower(), asked.query.get("$filter", ""))}
            )
        if len(parts) > 2 and own is not None and self.state.part(above) is not None:
            inline = (self.state.part(above) or {}).get("properties", {}).get(parts[-1])
            if isinstance(inline, list):
                return Answer(200, {"value": inline})
        elif own is not None and kinds.known(own.type) is not None and self.state.part(above) is None:
            raise (
                ArmError(404, "ResourceGroupNotFound", f"Resource group '{own.group}' could not be found.")
                if own.type == ids.GROUP_TYPE
                else not_found(above)
            )
        found = [
            self._shown(one)
            for one in self.state.of_type(kind.type)
            if ids.below(one.key, above) and one.visible_at <= self.state.now()
        ]
        return Answer(200, {"value": found})


def assignments(state: State, scope: str, text: str) -> list[dict[str, Any]]:
    """Return the role assignments that a list at a scope has: those of the scope, above it and below it.

    Args:
        state: Everything.
        scope: In lower case.
        text: The filter: assignedTo('ID'), principalId eq 'ID', atScope().
    """
    wanted = _PRINCIPAL.search(text)
    found = []
    for one in state.of_type(ASSIGNMENT):
        own = str(one.properties.get("scope")).lower()
        inside = ids.below(own, scope) and "atscope()" not in text.lower()
        if own != scope and not ids.below(scope, own) and not inside:
            continue
        if one.visible_at <= state.now() and (
            wanted is None or str(one.properties.get("principalId")).lower() == wanted["id"].lower()
        ):
            found.append(one.document)
    return found


def _response(answer: Answer) -> Response:
    headers = {
        "content-type": "application/json; charset=utf-8",
        "x-ms-request-id": secrets.token_hex(16),
        "x-ms-ratelimit-remaining-subscription-writes": "199",
        **answer.headers,
    }
    body = b"" if answer.document is None else json.dumps(answer.document).encode()
    return Response(answer.status, headers, body)


def _refused(wrong: ArmError) -> Response:
    return _response(Answer(wrong.status, {"error": wrong.document()}, wrong.headers))
