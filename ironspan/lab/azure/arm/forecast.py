# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a template would do: refused by its resources' providers, or predicted."""

from __future__ import annotations

import copy
import uuid
from typing import Any

from ironspan.lab.azure.arm import expressions, ids, kinds, templates, whatif
from ironspan.lab.azure.arm.engine import Engine
from ironspan.lab.azure.arm.errors import ArmError
from ironspan.lab.azure.arm.rules.common import links
from ironspan.lab.azure.arm.state import Resource, State
from ironspan.lab.azure.arm.templates import Part


class Forecast:
    """Looks ahead."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def _state(self) -> State:
        return self._engine.state

    def preflight(self, parts: list[Part]) -> None:
        """Refuse a template whose resources their providers would refuse. Raises ArmError."""
        details = []
        coming = {part.key for part, _ in templates.flat(parts)}
        coming |= {one.key for one in parts if one.nested is not None}
        for part, _ in templates.flat(parts):
            own = ids.parse(part.id)
            assert own is not None
            try:
                body = expressions.evaluate(part.body, lambda _: None, strict=False)
                self._engine.prepare(own, part.version, body)
                self._check_coming(part, body, coming)
            except ArmError as wrong:
                details.append({**wrong.document(), "target": part.id})
        if details:
            raise ArmError(
                400,
                "InvalidTemplateDeployment",
                "The template deployment is not valid according to the validation procedure. The tracking "
                f"id is '{uuid.uuid4()}'. See inner errors for details.",
                details,
            )

    def _check_coming(self, part: Part, body: dict[str, Any], coming: set[str]) -> None:
        """Refuse references to what neither is there nor comes with the template."""
        for link in [
            *links(body.get("properties", {})),
            *((body.get("identity") or {}).get("userAssignedIdentities") or {}),
        ]:
            parsed = ids.parse(link)
            top = parsed
            while top is not None and top.parent is not None:
                top = top.parent
            if (
                parsed is None
                or top is None
                or kinds.known(top.type) is None
                or ids.below(link.lower(), part.key)
            ):
                continue
            if self._state.part(link) is None and link.lower() not in coming and top.key not in coming:
                raise ArmError(
                    400,
                    "InvalidResourceReference",
                    f"Resource {link} referenced by resource {part.id} was not found. Please make sure "
                    "that the referenced resource exists, and that both resources are in the same region.",
                )

    def what_if(self, parts: list[Part], baseline: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """Return the changes that a template would make, one for each resource of it."""
        found = []
        for part, deployment in templates.flat(parts):
            own = ids.parse(part.id)
            assert own is not None
            resource = self._state.find(part.id)
            body = expressions.evaluate(copy.deepcopy(part.body), self.look, strict=False)
            unsupported = self._unpredictable(body)
            kind = kinds.find(part.type)
            document = {
                "id": resource.id if resource else own.text, "name": own.name, "type": kind.type,
                "apiVersion": part.version, **body,
            }  # fmt: skip
            change = whatif.compare(resource, document, (baseline or {}).get(part.key))
            found.append(
                {
                    "resourceId": resource.id if resource else own.text, "deploymentId": deployment or None,
                    "resourceType": kind.type, "apiVersion": part.version, **change, "potential": unsupported,
                }
            )  # fmt: skip
        return found

    def _unpredictable(self, body: Any) -> bool:
        if isinstance(body, dict):
            return any(self._unpredictable(one) for one in body.values())
        if isinstance(body, list):
            return any(self._unpredictable(one) for one in body)
        return expressions.is_expression(body)

    def ignored(self, parts: list[Part], scope: str) -> list[Resource]:
        """Return what is there in the template's resource groups, and is none of its parts."""
        own = {part.key for part, _ in templates.flat(parts)}
        groups = {scope.lower()} if "/resourcegroups/" in scope.lower() else set()
        for part, _ in templates.flat(parts):
            parsed = ids.parse(part.id)
            if parsed is not None and parsed.group:
                groups.add(f"/subscriptions/{parsed.subscription}/resourcegroups/{parsed.group}".lower())
        return [
            one
            for one in self._state.resources.values()
            if one.key not in own and any(ids.below(one.key, group) for group in groups)
        ]

    def look(self, id: str) -> dict[str, Any] | None:
        """Return the properties of a resource."""
        found = self._state.find(id)
        return found.properties if found is not None else None
