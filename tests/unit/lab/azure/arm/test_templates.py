# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Templates: the one expression, what is refused, what waits for what."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ironspan.lab.azure.arm import expressions, templates
from ironspan.lab.azure.arm.errors import ArmError
from tests.support.lab_arm import IDENTITY, REGION, SCOPE, estate, group_id, template

NET = group_id("net")
ROLE = "/providers/Microsoft.Authorization/roleDefinitions/acdd72a7-3385-48ef-bd42-f606fba81ae7"


def identity(name: str = "one", **more: Any) -> dict[str, Any]:
    """An identity in a template."""
    return {
        "type": "Microsoft.ManagedIdentity/userAssignedIdentities",
        "apiVersion": "2024-11-30",
        "name": name,
        "location": REGION,
        **more,
    }


def read(*resources: dict[str, Any], scope: str = NET) -> list[templates.Part]:
    return templates.read({"template": template(list(resources), scope == SCOPE)}, scope)


EXPRESSIONS = [
    (f"[reference('{IDENTITY}', '2024-11-30').principalId]", ("principalId",)),
    (f"[reference('{IDENTITY}','2024-11-30').a.b]", ("a", "b")),
]
NONE = [
    "[resourceGroup().location]",
    "[concat('a', 'b')]",
    "[parameters('x')]",
    f"[reference('{IDENTITY}').principalId]",
    f"[reference('{IDENTITY}', '2024-11-30')]",
    f"[reference('{IDENTITY}', 'latest').principalId]",
    "[reference('one', '2024-11-30').principalId]",
    f"[reference('{IDENTITY}', '2024-11-30').a[0]]",
    f"[reference('{IDENTITY}', '2024-11-30').a, 1]",
    "[]",
]


@pytest.mark.parametrize(("text", "path"), EXPRESSIONS)
def test_a_reference(text: str, path: tuple[str, ...]) -> None:
    assert expressions.understand(text, "x") == expressions.Reference(IDENTITY, "2024-11-30", path)


@pytest.mark.parametrize("text", NONE)
def test_another_expression_is_refused(text: str) -> None:
    with pytest.raises(ArmError) as refused:
        read(identity(properties={"isolationScope": text}))
    assert refused.value.code == "InvalidTemplate"


def test_two_brackets_are_one() -> None:
    assert expressions.evaluate({"a": ["[[x]"]}, lambda _: None) == {"a": ["[x]"]}


def test_a_reference_to_nothing() -> None:
    text = EXPRESSIONS[0][0]
    with pytest.raises(ArmError) as refused:
        expressions.evaluate(text, lambda _: None)
    assert refused.value.code == "ResourceNotFound"
    with pytest.raises(ArmError) as refused:
        expressions.evaluate(text, lambda _: {"clientId": "x"})
    assert refused.value.code == "InvalidTemplate"
    assert expressions.evaluate(text, lambda _: None, strict=False) == text
    assert expressions.evaluate(text, lambda _: {"principalId": "x"}) == "x"


def changed(**changes: Any) -> dict[str, Any]:
    return {**template([identity()]), **changes}


BAD = [
    changed(**{"$schema": template([], True)["$schema"]}),
    changed(contentVersion=1),
    changed(parameters={"a": {"type": "string"}}),
    changed(variables={"a": 1}),
    changed(outputs={"a": {"type": "string", "value": "x"}}),
    changed(extra=1),
    changed(resources={}),
    changed(resources=[1]),
    changed(resources=[identity(), identity()]),
    changed(resources=[identity(name="")]),
    changed(resources=[identity(name="a/b")]),
    changed(resources=[identity(condition=True)]),
    changed(resources=[identity(copy={"name": "x", "count": 2})]),
    changed(resources=[identity(location="[resourceGroup().location]")]),
    changed(resources=[identity(dependsOn="x")]),
    changed(resources=[identity(dependsOn=["one"])]),
    changed(resources=[identity(dependsOn=[IDENTITY])]),
    changed(
        resources=[{"type": "Microsoft.Resources/resourceGroups", "apiVersion": "2025-04-01", "name": "a"}]
    ),
]


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_template(bad: dict[str, Any]) -> None:
    with pytest.raises(ArmError) as refused:
        templates.read({"template": bad}, NET)
    assert refused.value.code == "InvalidTemplate"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"type": "Microsoft.ManagedIdentity/identities"}, "InvalidResourceType"),
        ({"type": "Microsoft.Nothing/things"}, "InvalidResourceNamespace"),
        ({"apiVersion": "2023-01-31"}, "NoRegisteredProviderFound"),
    ],
)
def test_an_unknown_type_or_version(change: dict[str, str], code: str) -> None:
    with pytest.raises(ArmError) as refused:
        read({**identity(), **change})
    assert refused.value.code == code


def test_a_circle() -> None:
    ids = [f"{NET}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/{name}" for name in "ab"]
    with pytest.raises(ArmError, match="Circular"):
        read(identity("a", dependsOn=[ids[1]]), identity("b", dependsOn=[ids[0]]))


def test_what_is_referred_to_is_waited_for() -> None:
    own = f"{NET}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/one"
    assignment = {
        "type": "Microsoft.Authorization/roleAssignments",
        "apiVersion": "2022-04-01",
        "name": "6fa1c9c1-4a58-4b7e-9a4c-5f3a3a9d5c01",
        "scope": own,
        "properties": {
            "roleDefinitionId": f"{SCOPE}{ROLE}",
            "principalId": f"[reference('{own}', '2024-11-30').principalId]",
        },
    }
    parts = read(assignment, identity())
    assert parts[0].id == f"{own}/providers/Microsoft.Authorization/roleAssignments/{assignment['name']}"
    assert parts[0].waits == [own.lower()]


@pytest.mark.parametrize(
    "change", [{"mode": "Complete"}, {"expressionEvaluationOptions": {"scope": "outer"}}]
)
def test_nested_deployments_are_inner_and_incremental(change: dict[str, Any]) -> None:
    whole = copy.deepcopy(estate())
    whole["resources"][2]["properties"].update(change)
    with pytest.raises(ArmError) as refused:
        templates.read({"template": whole}, SCOPE)
    assert refused.value.code == "InvalidTemplate"


def test_parts_are_kept_as_they_are() -> None:
    parts = templates.read({"template": estate()}, SCOPE)
    assert [templates.Part.from_dict(one.as_dict()) for one in parts] == parts
    assert len(templates.flat(parts)) == 9
