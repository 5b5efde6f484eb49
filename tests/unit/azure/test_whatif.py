# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What Azure's what-if says, in the two forms that it has, as changes of ours."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure import noise
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.whatif import (
    Property,
    name_of,
    of_deployment,
    of_stack,
    type_of,
)
from hypothesis import given
from hypothesis import strategies as st

GROUP = "/subscriptions/S/resourceGroups/lab-machines"
VM = f"{GROUP}/providers/Microsoft.Compute/virtualMachines/etcd-1"


def stack(*changes: dict[str, t.Any], **more: t.Any) -> dict[str, t.Any]:
    return {"properties": {"changes": {"resourceChanges": list(changes)}, **more}}


def plain(*changes: dict[str, t.Any], **more: t.Any) -> dict[str, t.Any]:
    return {"status": "Succeeded", "properties": {"changes": list(changes), **more}}


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("create", "create"),
        ("Delete", "delete"),
        ("detach", "detach"),
        ("modify", "modify"),
        ("unsupported", "unsupported"),
        ("somethingNew", "unsupported"),
        ("", "unsupported"),
    ],
)
def test_kinds_of_a_stack(said: str, kind: str) -> None:
    (change,) = of_stack(stack({"id": VM, "changeType": said})).changes
    assert (change.id, change.kind) == (VM, kind)


@pytest.mark.parametrize(
    ("said", "kind"),
    [("Create", "create"), ("Delete", "delete"), ("Deploy", "unsupported"), ("Modify", "modify")],
)
def test_kinds_of_a_plain_deployment(said: str, kind: str) -> None:
    (change,) = of_deployment(plain({"resourceId": VM, "changeType": said})).changes
    assert (change.id, change.kind) == (VM, kind)


def test_what_stays_is_counted_and_not_shown() -> None:
    same = of_deployment(
        plain({"resourceId": VM, "changeType": "NoChange"}, {"resourceId": GROUP, "changeType": "Ignore"})
    )
    assert (same.changes, same.same) == ((), 2)
    assert of_stack(stack({"id": VM, "changeType": "noChange"})).same == 1


def test_a_tree_of_properties_becomes_paths() -> None:
    delta = [
        {
            "path": "properties",
            "changeType": "modify",
            "children": [
                {"path": "hardwareProfile.vmSize", "changeType": "modify", "before": "a", "after": "b"},
                {
                    "path": "rules",
                    "changeType": "array",
                    "children": [
                        {
                            "path": "0",
                            "changeType": "modify",
                            "children": [{"path": "port", "changeType": "create", "after": 1}],
                        },
                        {"path": "1", "changeType": "delete", "before": {"x": 1}},
                    ],
                },
                {"path": "ignored", "changeType": "noEffect", "after": 1},
            ],
        }
    ]
    (change,) = of_stack(
        stack({"id": VM, "changeType": "modify", "resourceConfigurationChanges": {"delta": delta}})
    ).changes
    assert change.properties == (
        Property("properties.hardwareProfile.vmSize", "modify", "a", "b"),
        Property("properties.rules[0].port", "create", None, 1),
        Property("properties.rules[1]", "delete", {"x": 1}, None),
    )
    assert change.as_dict()["properties"]["properties.hardwareProfile.vmSize"] == {
        "before": "a",
        "after": "b",
    }


def test_both_forms_say_the_same() -> None:
    property_ = {"path": "tags.a", "before": "1", "after": "2"}
    one = of_stack(
        stack(
            {
                "id": VM,
                "changeType": "modify",
                "resourceConfigurationChanges": {"delta": [{**property_, "changeType": "modify"}]},
            }
        )
    )
    other = of_deployment(
        plain(
            {
                "resourceId": VM,
                "changeType": "Modify",
                "delta": [{**property_, "propertyChangeType": "Modify"}],
            }
        )
    )
    assert one == other


def test_a_change_of_noise_alone_is_none_and_is_counted() -> None:
    delta = [
        {"path": "properties.provisioningState", "propertyChangeType": "Delete", "before": "Succeeded"},
        {"path": "properties.vmId", "propertyChangeType": "Delete", "before": "x"},
    ]
    seen = of_deployment(plain({"resourceId": VM, "changeType": "Modify", "delta": delta}))
    assert (seen.changes, seen.same) == ((), 1)
    assert seen.hidden == {"machine-defaults": 1, "read-only": 1}


def test_a_modification_that_azure_does_not_explain_is_shown() -> None:
    assert of_stack(stack({"id": VM, "changeType": "modify"})).changes[0].kind == "modify"


def test_potential_changes_and_diagnostics_are_told() -> None:
    seen = of_deployment(
        plain(
            potentialChanges=[{"resourceId": VM, "changeType": "Create"}],
            diagnostics=[
                {"level": "Warning", "code": "NestedDeploymentSkipped", "message": "not\nexpanded"},
                {"level": "Info", "code": "Other", "message": "x"},
            ],
        )
    )
    assert seen.changes[0].potential
    assert seen.warnings == ("NestedDeploymentSkipped: not expanded",)
    certain = of_stack(stack({"id": VM, "changeType": "create", "changeCertainty": "potential"}))
    assert certain.changes[0].potential


@pytest.mark.parametrize(
    ("resource", "kind", "name"),
    [
        (VM, "Microsoft.Compute/virtualMachines", "etcd-1 in lab-machines"),
        (GROUP, "Microsoft.Resources/resourceGroups", "lab-machines"),
        (
            f"{GROUP}/providers/Microsoft.Network/virtualNetworks/n/subnets/s",
            "Microsoft.Network/virtualNetworks/subnets",
            "n/s in lab-machines",
        ),
        (
            f"{VM}/providers/Microsoft.Authorization/roleAssignments/g",
            "Microsoft.Authorization/roleAssignments",
            "g in lab-machines",
        ),
    ],
)
def test_ids_are_named(resource: str, kind: str, name: str) -> None:
    assert (type_of(resource), name_of(resource)) == (kind, name)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_DELTA = st.recursive(
    st.fixed_dictionaries(
        {
            "path": st.sampled_from(["a", "properties.b", "0", "properties.provisioningState"]),
            "changeType": st.sampled_from(["create", "delete", "modify", "noEffect"]),
        },
        optional={"before": _JSON, "after": _JSON},
    ),
    lambda inner: st.fixed_dictionaries(
        {"path": st.sampled_from(["p", "1"]), "changeType": st.just("array")},
        optional={"children": st.lists(inner, max_size=3)},
    ),
    max_leaves=5,
)


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "id": st.sampled_from(
                    [VM, GROUP, f"{GROUP}/providers/Microsoft.Network/networkSecurityGroups/n"]
                ),
                "changeType": st.sampled_from(["create", "delete", "detach", "modify", "noChange", "?"]),
                "resourceConfigurationChanges": st.fixed_dictionaries(
                    {"delta": st.lists(_DELTA, max_size=3)}
                ),
            }
        ),
        max_size=6,
    )
)
def test_nothing_gets_lost(changes: list[dict[str, t.Any]]) -> None:
    """Every resource is shown or counted, all that goes is shown, and no rule hides what is protected."""
    seen = of_stack(stack(*changes))
    assert len(seen.changes) + seen.same == len(changes)
    for kind in ("create", "delete", "detach"):
        told = sorted(change.id for change in seen.changes if change.kind == kind)
        assert told == sorted(one["id"] for one in changes if one["changeType"] == kind)
    for rule in seen.hidden:
        assert rule in {noise.SPELLING, noise.EMPTY, *(one.name for one in noise.RULES)}
