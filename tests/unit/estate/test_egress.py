# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What pods reach of an estate, as entries of the allow-list."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.egress import missing_entries

from .conftest import RICH, SUBSCRIPTION, made

_HUB = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/hub/providers"
POSTGRES = f"{_HUB}/Microsoft.DBforPostgreSQL/flexibleServers/Ledger"


def test_pods_reach_accounts_and_databases_and_neither_vault_nor_backup() -> None:
    more = [*RICH["azure_endpoints"], {"name": "ledger", "group": "postgresqlServer", "resource": POSTGRES}]
    estate = made(**{**RICH, "azure_endpoints": more})
    found = missing_entries(estate, [], "storage team", "2027-03-31")
    account = estate.storage[0].account
    assert [(one["destination"], one["ports"]) for one in found] == [
        (f"{account}.blob.core.windows.net", [443]),
        (f"{account}.dfs.core.windows.net", [443]),
        ("state.documents.azure.com", [443, "10250-10256"]),
        ("ledger.postgres.database.azure.com", [5432]),
    ]
    assert {(one["owner"], one["expires"]) for one in found} == {("storage team", "2027-03-31")}
    assert missing_entries(estate, found, "storage team", "2027-03-31") == []
