# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Templates, taken apart: what each part is, where it goes, what it waits for."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from ironspan.lab.azure.arm import expressions, ids, kinds
from ironspan.lab.azure.arm.errors import ArmError
from ironspan.lab.azure.arm.expressions import invalid
from ironspan.lab.azure.arm.ids import ResourceId

_SCHEMAS = ("subscriptionDeploymentTemplate.json", "deploymentTemplate.json")
_TOP = {
    "$schema",
    "contentVersion",
    "resources",
    "parameters",
    "variables",
    "outputs",
    "metadata",
    "functions",
}
_EMPTY = ("parameters", "variables", "outputs", "functions")
#: What a part has besides the body that its resource provider gets.
_ENVELOPE = ("type", "apiVersion", "name", "dependsOn", "comments", "metadata", "scope", "subscriptionId",
             "resourceGroup")  # fmt: skip
#: Parts of one template, nested templates within one deployment.
_MOST_PARTS, _MOST_NESTED = 800, 800


@dataclass
class Part:
    """One resource of a template.

    Attributes:
        id: What it becomes.
        version: The api-version that it is written with.
        body: What its resource provider gets.
        waits: Keys of the parts that come first.
        nested: The parts of a nested deployment.
    """

    id: str
    type: str
    version: str
    body: dict[str, Any]
    waits: list[str] = field(default_factory=list)
    nested: list[Part] | None = None

    @property
    def key(self) -> str:
        """Its id without case."""
        return self.id.lower()

    def as_dict(self) -> dict[str, Any]:
        """For keeping."""
        return asdict(self)

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Part:
        """Read what `as_dict` wrote."""
        nested = document["nested"]
        return cls(
            **{**document, "nested": None if nested is None else [cls.from_dict(one) for one in nested]}
        )


def read(properties: dict[str, Any], scope: str) -> list[Part]:
    """Return the parts of the template in a deployment's or a stack's properties.

    Args:
        properties: The properties: `template`, `parameters`.
        scope: Subscription or resource group that it is deployed to.

    Raises:
        ArmError: InvalidTemplate.
    """
    template = properties.get("template")
    if isinstance(template, str):
        try:
            template = json.loads(template)
        except ValueError:
            raise invalid("the template is no JSON") from None
    if properties.get("templateLink") or properties.get("parametersLink"):
        raise invalid("templateLink and parametersLink are not known here; send the template itself")
    if not isinstance(template, dict):
        raise ArmError(
            400, "InvalidRequestContent", "The request content was invalid: 'template' is missing."
        )
    if properties.get("parameters"):
        raise invalid(
            f"The template parameters '{', '.join(properties['parameters'])}' in the parameters file are "
            "not valid; they are not present in the original template"
        )
    parts = _parts(template, scope)
    if _nested(parts) > _MOST_NESTED:
        raise invalid(f"a template has at most {_MOST_NESTED} nested deployments")
    return parts


def _nested(parts: list[Part]) -> int:
    return sum(1 + _nested(one.nested) for one in parts if one.nested is not None)


def _parts(template: dict[str, Any], scope: str) -> list[Part]:
    group = "/resourcegroups/" in scope.lower()
    schema = str(template.get("$schema", "")).rstrip("#").rpartition("/")[2]
    if schema != _SCHEMAS[group]:
        raise invalid(
            f"the '$schema' of a template for '{scope}' ends with '{_SCHEMAS[group]}#', found '{schema}'"
        )
    if not isinstance(template.get("contentVersion"), str):
        raise invalid("the template has no 'contentVersion'")
    unknown = set(template) - _TOP
    if unknown:
        raise invalid(f"Could not find member '{min(unknown)}' on object of type 'Template'")
    for name in _EMPTY:
        if template.get(name):
            raise invalid(f"'{name}' are not known here; write literals")
    resources = template.get("resources")
    if not isinstance(resources, list):
        raise invalid("'resources' must be a list")
    if len(resources) > _MOST_PARTS:
        raise invalid(f"The number of template resources limit exceeded. Limit: {_MOST_PARTS}")
    parts = [_part(one, f"resources[{number}]", scope) for number, one in enumerate(resources)]
    by_key: dict[str, Part] = {}
    for part in parts:
        if part.key in by_key:
            raise invalid(f"The resource '{part.id}' is defined multiple times in a template")
        by_key[part.key] = part
    for part in parts:
        for wanted in part.waits:
            if wanted not in by_key:
                raise invalid(f"The resource '{wanted}' is not defined in the template")
        if part.nested is None:  # what a reference reads is there before it is read
            for one in expressions.references(part.body.get("properties")):
                if one.id.lower() in by_key and one.id.lower() not in part.waits:
                    part.waits.append(one.id.lower())
    _circles(by_key)
    return parts


def _part(resource: Any, where: str, scope: str) -> Part:
    if not isinstance(resource, dict):
        raise invalid(f"'{where}' is no object")
    for name in ("type", "apiVersion", "name"):
        if not isinstance(resource.get(name), str) or not resource[name]:
            raise invalid(f"'{where}' lacks '{name}'")
    for name in ("copy", "condition", "resources", "existing"):
        if name in resource:
            raise invalid(f"'{name}' of '{where}' is not known here; write literals")
    for name, value in resource.items():
        if name != "properties":
            expressions.literal(value, f"{where}.{name}")
    kind = kinds.find(resource["type"])
    own = _place(resource, kind, scope, where)
    kinds.check_version(kind, resource["apiVersion"], str(resource.get("location", "")))
    body = {name: value for name, value in resource.items() if name not in _ENVELOPE}
    waits = _waits(resource.get("dependsOn", []), where)
    if kind.type != ids.DEPLOYMENT_TYPE:
        for _ in expressions.references(body.get("properties"), f"{where}.properties"):
            pass  # refuses what is none
        return Part(own.text, kind.type, resource["apiVersion"], body, waits)
    properties = body.get("properties") or {}
    inner = (properties.get("expressionEvaluationOptions") or {}).get("scope", "outer")
    if str(inner).lower() != "inner":
        raise invalid(
            f"'{where}': write expressionEvaluationOptions.scope 'inner'; outer scope is not known here"
        )
    if properties.get("mode") != "Incremental":
        raise invalid(f"'{where}': a nested deployment is 'Incremental'")
    return Part(own.text, kind.type, resource["apiVersion"], body, waits, read(properties, own.scope))


def _place(resource: dict[str, Any], kind: kinds.Kind, scope: str, where: str) -> ResourceId:
    names = tuple(resource["name"].split("/"))
    types = tuple(kind.type.split("/")[1:])
    if len(names) != len(types):
        raise invalid(
            f"The template resource '{resource['name']}' for type '{kind.type}' at '{where}' has incorrect "
            "segment lengths. A nested resource type must have identical number of segments as its "
            "resource name"
        )
    if isinstance(resource.get("resourceGroup"), str):
        scope = f"{scope.split('/resource')[0]}/resourceGroups/{resource['resourceGroup']}"
    if isinstance(resource.get("scope"), str):
        scope = resource["scope"].rstrip("/")
    group = "/resourcegroups/" in scope.lower()
    subscription_level = (
        kind.type in (ids.GROUP_TYPE, ids.DEPLOYMENT_TYPE) or kind.provider == "Microsoft.Authorization"
    )
    if (group and kind.type == ids.GROUP_TYPE) or (not group and not subscription_level):
        raise invalid(f"The resource type '{kind.type}' at '{where}' cannot be deployed to '{scope}'")
    return ResourceId(scope, kind.provider, types, names)


def _waits(value: Any, where: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise invalid(f"'{where}.dependsOn' must be a list of resource ids")
    for one in value:
        if ids.parse(one) is None:
            raise invalid(f"'{where}.dependsOn': '{one}' is no resource id")
    return [one.rstrip("/").lower() for one in value]


def _circles(parts: dict[str, Part]) -> None:
    done: set[str] = set()

    def visit(key: str, way: tuple[str, ...]) -> None:
        if key in way:
            raise invalid(f"Circular dependency detected on resource: '{parts[key].id}'")
        if key not in done:
            for wanted in parts[key].waits:
                visit(wanted, (*way, key))
            done.add(key)

    for key in parts:
        visit(key, ())


def flat(parts: list[Part], deployment: str = "") -> list[tuple[Part, str]]:
    """Return all parts that are resources, with the id of the nested deployment that brings each."""
    found: list[tuple[Part, str]] = []
    for part in parts:
        if part.nested is None:
            found.append((part, deployment))
        else:
            found += flat(part.nested, part.id)
    return found
