# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Each rule of noise hides what it was written for, and none hides what people have to see."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.noise import (
    EMPTY,
    RULES,
    SPELLING,
    Rule,
    rule_for,
    same,
)

NAMES = [rule.name for rule in RULES]


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_a_rule_hides_its_example_and_only_what_goes(rule: Rule) -> None:
    kind, path = rule.example
    assert rule_for(kind, path, "delete", "value", None) == rule.name
    assert rule_for(kind, path, "modify", "value", "other") == ""
    assert rule_for(kind, path, "create", None, "value") == ""
    assert rule_for("Microsoft.Other/things", "properties.other", "delete", "value", None) == ""


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_a_rule_says_why_and_where_from(rule: Rule) -> None:
    assert len(rule.reason) > 10
    assert rule.source.startswith("https://")


def test_names_are_different() -> None:
    assert len({*NAMES, SPELLING, EMPTY}) == len(NAMES) + 2


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("Microsoft.Network/networkSecurityGroups", "properties.securityRules[0]"),
        ("Microsoft.Network/networkSecurityGroups", "properties.provisioningState"),
        ("Microsoft.Network/routeTables", "properties.routes[1].properties.nextHopIpAddress"),
        ("Microsoft.Authorization/roleAssignments", "properties.principalId"),
        (
            "Microsoft.Storage/storageAccounts/blobServices/containers/immutabilityPolicies",
            "properties.immutabilityPeriodSinceCreationInDays",
        ),
        ("Microsoft.Storage/storageAccounts", "properties.publicNetworkAccess"),
        ("Microsoft.Storage/storageAccounts", "properties.networkAcls.ipRules[0]"),
        ("Microsoft.Storage/storageAccounts", "properties.allowSharedKeyAccess"),
        ("Microsoft.KeyVault/vaults", "properties.enablePurgeProtection"),
        ("Microsoft.Compute/disks", "sku.name"),
        ("Microsoft.Compute/virtualMachines", "zones"),
        ("Microsoft.Compute/virtualMachines", "zones[0]"),
        ("Microsoft.Compute/virtualMachines", "properties.storageProfile.imageReference.version"),
        ("Microsoft.Compute/virtualMachines", "properties.hardwareProfile.vmSize"),
        ("Microsoft.Compute/virtualMachines", "identity"),
        ("Microsoft.Network/virtualNetworks", "properties.subnets[0].properties.networkSecurityGroup.id"),
        ("Microsoft.Network/virtualNetworks", "properties.subnets[0].properties.delegations[0]"),
        ("Microsoft.Network/virtualNetworks", "properties.virtualNetworkPeerings[0]"),
        ("Microsoft.Network/networkInterfaces", "properties.dnsSettings.dnsServers"),
    ],
)
def test_what_people_have_to_see_is_shown(kind: str, path: str) -> None:
    for change, before, after in (("delete", "a", None), ("modify", "a", "b"), ("create", None, "b")):
        assert rule_for(kind, path, change, before, after) == ""


@pytest.mark.parametrize(
    ("before", "after", "equal"),
    [
        ("/subscriptions/A/resourceGroups/B", "/subscriptions/a/resourcegroups/b", True),
        ("/subscriptions/A/resourceGroups/B", "/subscriptions/a/resourcegroups/c", False),
        ("Name", "name", False),
        ({"location": "West Europe"}, {"location": "westeurope"}, True),
        ([{"name": "a", "x": 1}, {"name": "b"}], [{"name": "b"}, {"name": "a", "x": 1}], True),
        ([{"name": "a", "x": 1}], [{"name": "a", "x": 2}], False),
        ([{"name": "a"}, {"name": "a"}], [{"name": "a"}], False),
        (["10.0.0.0/24", "10.1.0.0/24"], ["10.1.0.0/24", "10.0.0.0/24"], False),
        ([], {}, False),
    ],
)
def test_spelling(before: t.Any, after: t.Any, equal: bool) -> None:
    assert same(before, after) is equal


def test_two_spellings_and_what_is_empty_are_counted() -> None:
    vm = "Microsoft.Compute/virtualMachines"
    assert rule_for(vm, "x.id", "modify", "/subscriptions/A", "/subscriptions/a") == SPELLING
    assert rule_for(vm, "properties.list", "delete", [], None) == EMPTY
    assert rule_for(vm, "properties.flag", "delete", False, None) == ""
    assert rule_for(vm, "properties.number", "delete", 0, None) == ""
