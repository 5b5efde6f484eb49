# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Variables of a site, filled with what Terraform says, and what contradicts them."""

from __future__ import annotations

import typing as t

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.faults import given
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.stages import STAGES
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.terraform.conflicts import conflicts
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.terraform.fill import Filled, fill
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.terraform.read import found_in
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.terraform.text import as_text

from tests.unit.estate.conftest import SMALL

from .states import (
    ACCOUNT,
    COSMOS,
    HUB,
    NETWORK,
    POSTGRES,
    SECRET,
    SUBSCRIPTION,
    TENANT,
    VAULT,
    ZONE,
    ZONE_ID,
    Json,
    outputs,
    resource,
    resources,
    state,
)

NAMED: dict[str, t.Any] = {"azure_existing": {"subnets": {"endpoints": "pe"}}}


def of(entries: list[Json] | None = None, /, **written: t.Any) -> Filled:
    return fill(found_in(state(entries), "f"), written)


def test_what_exists_is_filled_in() -> None:
    filled = of(**NAMED)
    assert filled.variables == {
        "azure_subscription": SUBSCRIPTION,
        "azure_tenant": TENANT,
        "azure_region": "westeurope",
        "azure_address_space": "10.20.0.0/19",
        "azure_subnets": {"control": "10.20.0.0/24", "nodes": "10.20.8.0/21", "endpoints": "10.20.1.0/24"},
        "azure_existing": {
            "virtual_network": NETWORK,
            "subnets": {"endpoints": "pe"},
            "dns_zones": {ZONE: ZONE_ID},
            "vault": VAULT,
        },
        "azure_storage": [{"name": "hubweights", "existing": ACCOUNT, "hierarchical": False}],
        "azure_endpoints": [
            {"name": "state-db", "group": "Sql", "resource": COSMOS},
            {"name": "ledger", "group": "postgresqlServer", "resource": POSTGRES},
        ],
    }
    assert filled.sources["azure_existing.virtual_network"] == "module.net.azurerm_virtual_network.spoke"
    assert "not looked at, since they are sensitive: password" in filled.notes


def test_a_site_with_that_is_right() -> None:
    site = {**SMALL, **of(**NAMED).variables}
    judged = given(site, {})
    assert [fault for stage in STAGES for judge in stage for fault in judge(judged)] == []
    assert list(conflicts(found_in(state(), "f"), judged.values, site, judged.estate)) == []


def test_what_the_site_says_stays() -> None:
    written: dict[str, t.Any] = {
        "azure_region": "northeurope",
        "azure_endpoints": [{"name": "db", "group": "Sql", "resource": COSMOS}],
    }
    filled = of(**written)
    assert "azure_region" not in filled.variables
    assert [one["name"] for one in filled.variables["azure_endpoints"]] == ["db", "ledger"]
    assert written["azure_endpoints"] == [{"name": "db", "group": "Sql", "resource": COSMOS}]


def test_nothing_is_filled_in_twice() -> None:
    assert of(**of(**NAMED).variables).variables == {}


def test_of_several_nobody_chooses() -> None:
    other = f"{HUB}/Microsoft.Network/virtualNetworks/other"
    filled = of([*resources(), resource("azurerm_virtual_network", "other", id=other)])
    assert "virtual_network" not in filled.variables["azure_existing"]
    (note,) = [one for one in filled.notes if "virtual networks" in one]
    assert NETWORK in note
    assert other in note
    chosen = of(
        [*resources(), resource("azurerm_virtual_network", "other", id=other)],
        azure_existing={"virtual_network": NETWORK},
    )
    assert chosen.variables["azure_address_space"] == "10.20.0.0/19"


def test_a_database_in_a_subnet_of_its_own_takes_no_endpoint() -> None:
    injected = resource(
        "azurerm_postgresql_flexible_server", "a", id=POSTGRES, delegated_subnet_id=f"{NETWORK}/subnets/a"
    )
    filled = of([injected])
    assert "azure_endpoints" not in filled.variables
    assert "takes no private endpoint" in "".join(filled.notes)


@pytest.mark.parametrize(
    ("name", "value", "filled", "note"),
    [
        ("azure_region", "northeurope", "northeurope", ""),
        ("azure_region", "North Europe!", None, "is no value of that variable"),
        ("azure_zones", "1", None, "no variable of that name that is one text"),
        ("azure_regions", "x", None, "no variable of that name that is one text"),
    ],
)
def test_outputs_called_like_variables(name: str, value: str, filled: str | None, note: str) -> None:
    answer = fill(found_in(outputs(**{name: value}), "f"), {})
    assert answer.variables.get(name) == filled
    assert note in "".join(answer.notes)


def test_names_are_the_sites_own() -> None:
    odd = [
        resource("azurerm_storage_account", "a", id=f"{HUB}/Microsoft.Storage/storageAccounts/9vault"),
        resource("azurerm_storage_account", "b", id=f"{HUB}/Microsoft.Storage/storageAccounts/vault"),
        resource("azurerm_cosmosdb_account", "c", id=f"{HUB}/Microsoft.DocumentDB/databaseAccounts/vault-2"),
    ]
    variables = of(odd).variables
    names = [one["name"] for key in ("azure_storage", "azure_endpoints") for one in variables[key]]
    assert names == ["x-9vault", "vault-2", "vault-2-2"]


def test_what_is_printed_is_an_inventory_and_has_no_secret() -> None:
    found = found_in(state(), "f")
    text = as_text(found, fill(found, NAMED))
    assert yaml.safe_load(text) == of(**NAMED).variables
    assert SECRET not in text
    assert "#   azure_existing.vault: azurerm_key_vault.hub" in text


MACHINE = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/ironspan-example-machines/providers"
    "/Microsoft.Compute/virtualMachines/etcd-1"
)
EXISTS = {"azure_existing": {"virtual_network": NETWORK, "subnets": {"endpoints": "pe"}}}


@pytest.mark.parametrize(
    ("more", "entries", "place", "says"),
    [
        ({**EXISTS, "azure_region": "northeurope"}, [], "azure_region", "westeurope"),
        ({**EXISTS, "azure_address_space": "10.21.0.0/20"}, [], "azure_address_space", "is no part of"),
        ({**EXISTS, "azure_subnets": {"nodes": "10.20.4.0/22"}}, [], "nodes",
         "is not what azurerm_subnet.nodes has"),
        ({"azure_existing": {"virtual_network": NETWORK}, "azure_subnets": {"endpoints": "10.20.1.0/24"}}, [],
         "endpoints", "has no subnet endpoints"),
        ({"azure_existing": {"dns_zones": {ZONE: ZONE_ID.replace("hub", "dns")}}}, [], ZONE,
         "is another zone"),
        ({"azure_existing": {"vault": VAULT}, "azure_tenant": SUBSCRIPTION}, [], "azure_tenant", TENANT),
        ({}, [resource("azurerm_linux_virtual_machine", "e", id=MACHINE)], "azure_machines",
         "makes virtualmachines etcd-1, which Terraform owns (azurerm_linux_virtual_machine.e)"),
    ],
)  # fmt: skip
def test_what_contradicts_has_its_place(
    more: dict[str, t.Any], entries: list[Json], place: str, says: str
) -> None:
    site = {**SMALL, **more}
    judged = given(site, {})
    found = found_in(state([*resources(), *entries]), "f")
    ((path, message, remedy),) = conflicts(found, judged.values, site, judged.estate)
    assert path[-1] == place
    assert says in message
    assert remedy


def test_what_terraform_only_looks_up_is_no_conflict() -> None:
    judged = given(SMALL, {})
    looked_up = resource("azurerm_linux_virtual_machine", "e", mode="data", id=MACHINE)
    assert list(conflicts(found_in(state([looked_up]), "f"), judged.values, SMALL, judged.estate)) == []


def test_an_output_that_says_something_else() -> None:
    judged = given(SMALL, {})
    found = found_in(outputs(azure_region="northeurope"), "f")
    assert [path for path, _, _ in conflicts(found, judged.values, SMALL, None)] == [("azure_region",)]
