# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Import blocks for Terraform: everything that the estate has, once, by the ids that it has."""

from __future__ import annotations

import re

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.templates import by_id
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.template import template
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.terraform.export import as_text, exported
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.terraform.found import parsed

from tests.unit.estate.conftest import RICH, SUBSCRIPTION, made

ESTATE = made(**RICH)
GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/ironspan-example-"


def test_every_resource_is_imported_or_named_as_left() -> None:
    found = exported(ESTATE)
    said = {one.id.partition("|")[0].lower() for one in found.imports} | {
        one.lower() for one, _ in found.left
    }
    there = by_id(template(ESTATE), f"/subscriptions/{SUBSCRIPTION}")
    # A role has its own id in the subscription, and its scope behind it.
    missing = {one for one in there if one not in said and "/roledefinitions/" not in one}
    assert missing == set()
    roles = [one.id for one in found.imports if one.type == "azurerm_role_definition"]
    assert len(roles) == sum("/roledefinitions/" in one for one in there) > 0
    assert all(
        re.fullmatch(r"/subscriptions/[^|/]+/providers/.+\|/subscriptions/.+/resourceGroups/.+", one)
        for one in roles
    )


def test_no_block_is_there_twice() -> None:
    found = exported(ESTATE)
    assert len({(one.type, one.label) for one in found.imports}) == len(found.imports)
    assert len({(one.type, one.id) for one in found.imports}) == len(found.imports)
    assert all(re.fullmatch(r"[a-z_][a-z0-9_]*", one.label) for one in found.imports)


def test_what_terraform_keeps_apart_has_ids_of_the_providers_own_form() -> None:
    ids = {one.type: one.id for one in reversed(exported(ESTATE).imports)}
    network = f"{GROUP}network/providers/Microsoft.Network"
    assert ids["azurerm_subnet"] == f"{network}/virtualNetworks/ironspan-example-net/subnets/control"
    assert ids["azurerm_subnet_network_security_group_association"] == ids["azurerm_subnet"]
    assert ids["azurerm_nat_gateway_public_ip_association"] == (
        f"{network}/natGateways/ironspan-example-nat|{network}/publicIPAddresses/ironspan-example-nat-1"
    )
    machine = f"{GROUP}machines/providers/Microsoft.Compute/virtualMachines/etcd-1"
    assert ids["azurerm_linux_virtual_machine"] == machine
    assert (
        ids["azurerm_virtual_machine_data_disk_attachment"]
        == f"{machine}/dataDisks/ironspan-example-etcd-etcd-1"
    )
    pool = ids["azurerm_network_interface_backend_address_pool_association"]
    assert re.fullmatch(
        r".+/networkInterfaces/[^|]+/ipConfigurations/[^|]+\|.+/backendAddressPools/[^|]+", pool
    )


def test_the_file_says_what_to_do_and_what_is_left() -> None:
    text = as_text(ESTATE)
    assert "az stack sub delete --name ironspan-example --action-on-unmanage detachAll" in text
    assert "az keyvault key show --vault-name" in text
    assert text.count("import {") == len(exported(ESTATE).imports)
    blocks = re.findall(r'\nimport \{\n  to = ([a-z0-9_]+)\.([a-z0-9_]+)\n  id = "([^"\n]+)"\n\}\n', text)
    assert len(blocks) == text.count("import {")
    plain = [one for _, _, one in blocks if "|" not in one and "/roleAssignments/" not in one]
    assert all(parsed(one) for one in plain)


def test_a_plain_deployment_is_let_go_otherwise() -> None:
    assert "az deployment sub delete --name ironspan-example" in as_text(made(azure_deployment="plain"))
