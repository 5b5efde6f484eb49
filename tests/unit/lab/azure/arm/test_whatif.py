# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What-if: nothing but noise about what is deployed, and all of a change; with a baseline no noise."""

from __future__ import annotations

import copy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from ironspan.lab.azure.arm import templates, whatif
from tests.support import lab_arm
from tests.unit.lab.azure.arm.conftest import Manager


def changes(manager: Manager, template: dict[str, Any], baseline: bool = False) -> dict[str, dict[str, Any]]:
    """Resource id -> change that is not NoChange."""
    parts = templates.read({"template": template}, lab_arm.SCOPE)
    stack = next(iter(manager.arm.state.stacks.values())) if baseline else {"baseline": None}
    found = manager.arm.deployments.forecast.what_if(parts, stack["baseline"])
    return {one["resourceId"]: one for one in found if one["changeType"] != "NoChange"}


def leaves(delta: list[dict[str, Any]], path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """The paths of a delta, "*" for places in lists."""
    found: set[tuple[str, ...]] = set()
    for one in delta:
        here = (*path, *("*" if part.isdigit() else part for part in one["path"].split(".")))
        found |= leaves(one["children"], here) if one.get("children") else {here}
    return found


def test_what_is_deployed_shows_only_what_azure_leaves_in(estate: Manager) -> None:
    reordered = {lab_arm.SECURITY}
    for id, change in changes(estate, lab_arm.estate()).items():
        if id not in reordered:
            resource = estate.arm.state.find(id)
            assert resource is not None
            assert leaves(change["delta"]) <= whatif.leaks(resource.type), id


def test_rules_that_azure_sorts_are_a_change_of_the_list(estate: Manager) -> None:
    delta = changes(estate, lab_arm.estate())[lab_arm.SECURITY]["delta"]
    assert [(one["path"], one["propertyChangeType"]) for one in delta] == [
        ("properties.securityRules", "Array")
    ]
    ordered = lab_arm.network_resources([lab_arm.rule("api", 100, "6443"), lab_arm.rule("ssh", 200, "22")])
    found = changes(estate, lab_arm.estate(ordered))[lab_arm.SECURITY]
    assert leaves(found["delta"]) <= whatif.leaks("Microsoft.Network/networkSecurityGroups")


def test_what_is_new_changed_and_taken_away(estate: Manager) -> None:
    network = lab_arm.network_resources()
    network[1]["properties"]["subnets"][0]["properties"].pop("networkSecurityGroup")
    network[1]["properties"]["subnets"].append(
        {"name": "more", "properties": {"addressPrefix": "10.1.2.0/24"}}
    )
    network[1]["tags"] = {"a": "b"}
    delta = changes(estate, lab_arm.estate(network))[lab_arm.NETWORK]["delta"]
    by_path = {one["path"]: one for one in delta}
    assert by_path["tags"]["propertyChangeType"] == "Create"
    children = {one["path"]: one for one in by_path["properties.subnets"]["children"]}
    assert children["2"]["propertyChangeType"] == "Create"
    taken = {one["path"]: one["propertyChangeType"] for one in children["0"]["children"]}
    assert taken["properties.networkSecurityGroup"] == "Delete"


def test_what_only_azure_writes_has_no_effect(estate: Manager) -> None:
    network = lab_arm.network_resources()
    network[1]["properties"]["resourceGuid"] = "another"
    delta = changes(estate, lab_arm.estate(network))[lab_arm.NETWORK]["delta"]
    assert {one["path"]: one["propertyChangeType"] for one in delta}["properties.resourceGuid"] == "NoEffect"


def test_a_baseline_hides_noise_and_nothing_else(manager: Manager) -> None:
    manager.stack(lab_arm.estate())
    assert changes(manager, lab_arm.estate(), baseline=True) == {}
    fewer = lab_arm.estate(lab_arm.network_resources([lab_arm.rule("ssh", 200, "22")]))
    assert set(changes(manager, fewer, baseline=True)) == {lab_arm.SECURITY}
    drifted = manager.arm.state.resources[lab_arm.SECURITY.lower()]
    drifted.properties["securityRules"][0]["properties"]["access"] = "Deny"
    assert set(changes(manager, lab_arm.estate(), baseline=True)) == {lab_arm.SECURITY}


RULES = st.lists(
    st.builds(
        lab_arm.rule, st.sampled_from("abcdef"), st.integers(100, 4096), st.sampled_from(["22", "443"])
    ),
    max_size=5,
    unique_by=(lambda one: one["name"], lambda one: one["properties"]["priority"]),
)
PREFIXES = st.lists(st.integers(0, 20), min_size=1, max_size=4, unique=True)


def drawn(rules: list[dict[str, Any]], numbers: list[int], tags: dict[str, str]) -> dict[str, Any]:
    """An estate of a network only."""
    network = lab_arm.network_resources(copy.deepcopy(rules))[:2]
    network[1]["tags"] = tags
    network[1]["properties"]["subnets"] = [
        {"name": f"s{number}", "properties": {"addressPrefix": f"10.1.{number}.0/24"}} for number in numbers
    ]
    return lab_arm.estate(network, [])


@given(
    before=st.tuples(RULES, PREFIXES, st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy"))),
    after=st.tuples(RULES, PREFIXES, st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy"))),
)
def test_after_a_deployment_what_if_of_it_is_empty_but_for_noise(before: Any, after: Any) -> None:
    with TemporaryDirectory() as folder:
        manager = Manager(Path(folder))
        for wanted in (before, after):
            template = drawn(*wanted)
            assert manager.stack(template)["provisioningState"] == "succeeded"
            assert changes(manager, template, baseline=True) == {}
        back = changes(manager, drawn(*before), baseline=True)
        same = [sorted(one[0], key=lambda rule: rule["name"]) for one in (before, after)]
        if same[0] != same[1]:
            assert lab_arm.SECURITY in back
        if before[1] != after[1] or before[2] != after[2]:
            assert lab_arm.NETWORK in back


@pytest.mark.parametrize("type", ["Microsoft.Network/virtualNetworks", "Microsoft.Compute/virtualMachines"])
def test_leaks_are_paths(type: str) -> None:
    assert all(path[0] in ("properties", "sku") for path in whatif.leaks(type))
