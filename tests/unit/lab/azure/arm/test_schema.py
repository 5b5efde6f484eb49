# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Bodies are checked against the models of the installed SDKs."""

from __future__ import annotations

from typing import Any

import pytest

from ironspan.lab.azure.arm import kinds, schema

NETWORK = kinds.find("Microsoft.Network/virtualNetworks").model
ASSIGNMENT = kinds.find("Microsoft.Authorization/roleAssignments").model
MACHINE = kinds.find("Microsoft.Compute/virtualMachines").model

BODIES: list[tuple[str, dict[str, Any], list[tuple[str, str]]]] = [
    (NETWORK, {"properties": {"addressSpace": {"addressPrefixes": ["10.0.0.0/8"]}}}, []),
    (NETWORK, {"propertys": {}}, [("propertys", "InvalidRequestContent")]),
    (NETWORK, {"properties": []}, [("properties", "InvalidRequestContent")]),
    (
        NETWORK,
        {"properties": {"subnets": {"name": "a"}}},
        [("properties.subnets", "InvalidRequestContent")],
    ),
    (
        NETWORK,
        {"properties": {"subnets": [{}, {"properties": {"addressPrefix": 1}}]}},
        [("properties.subnets[1].properties.addressPrefix", "InvalidRequestContent")],
    ),
    (
        NETWORK,
        {"properties": {"subnets": [{"properties": {"privateEndpointNetworkPolicies": "On"}}]}},
        [("properties.subnets[0].properties.privateEndpointNetworkPolicies", "InvalidParameter")],
    ),
    (
        NETWORK,
        {"properties": {"subnets": [{"properties": {"privateEndpointNetworkPolicies": "enabled"}}]}},
        [],
    ),
    (
        NETWORK,
        {"properties": {"enableDdosProtection": "no"}},
        [("properties.enableDdosProtection", "InvalidRequestContent")],
    ),
    (NETWORK, {"tags": {"a": 1}}, [("tags.a", "InvalidRequestContent")]),
    (NETWORK, {"properties": {"provisioningState": 5}}, []),
    (
        MACHINE,
        {"location": "x", "properties": {"networkProfile": {"networkInterfaces": [{"id": "a", "nic": 1}]}}},
        [("properties.networkProfile.networkInterfaces[0].nic", "InvalidRequestContent")],
    ),
    (MACHINE, {"properties": {}}, [("location", "MissingRequiredParameter")]),
    (MACHINE, {"location": "x", "properties": {"hardwareProfile": {"vmSize": "Standard_D4s_v6"}}}, []),
    (ASSIGNMENT, {"properties": {"principalId": "a", "roleDefinitionId": "b"}}, []),
    (
        ASSIGNMENT,
        {"properties": {"principalId": ["a"], "roleDefinitionId": "b", "role": ""}},
        [("properties.principalId", "InvalidRequestContent"), ("properties.role", "InvalidRequestContent")],
    ),
    (
        ASSIGNMENT,
        {"properties": {"principalId": "a"}},
        [("properties.roleDefinitionId", "MissingRequiredParameter")],
    ),
]


@pytest.mark.parametrize(("model", "body", "wrong"), BODIES)
def test_what_is_wrong_with_a_body(model: str, body: dict[str, Any], wrong: list[tuple[str, str]]) -> None:
    assert [(one.path, one.code) for one in schema.problems(model, body)] == wrong


def test_a_patch_may_lack_what_is_required() -> None:
    assert schema.problems(MACHINE, {"tags": {"a": "b"}}, partial=True) == []
    assert schema.problems(MACHINE, {"tag": {}}, partial=True) != []


def test_a_reference_needs_nothing_but_its_id() -> None:
    model = kinds.find("Microsoft.Network/connections").model
    body = {
        "location": "x",
        "properties": {"connectionType": "IPsec", "virtualNetworkGateway1": {"id": "/x"}},
    }
    assert schema.problems(model, body) == []
    body["properties"] = {"connectionType": "IPsec", "virtualNetworkGateway1": {"name": "x"}}
    assert [one.path for one in schema.problems(model, body)] == [
        "properties.virtualNetworkGateway1.properties"
    ]


@pytest.mark.parametrize("kind", kinds.every(), ids=lambda kind: kind.type)
def test_every_type_has_a_model(kind: kinds.Kind) -> None:
    assert schema.shape(kind.model).fields
    assert schema.problems(kind.model, {"nobody": 1}, partial=True)[-1].path == "nobody"


def test_what_only_azure_writes() -> None:
    found = schema.readonly(NETWORK)
    assert ("properties", "provisioningState") in found
    assert ("properties", "subnets", "*", "etag") in found
    assert ("properties", "subnets", "*", "properties", "addressPrefix") not in found
