# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The container that an estate makes gets its WORM policy like every other one."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds import backup_container

from .conftest import SMALL, SUBSCRIPTION, made

OTHER = {
    "subscription": SUBSCRIPTION,
    "resource_group": "elsewhere",
    "account": "copies",
    "container": "etcd",
    "retention_days": 7,
}


def test_the_container_of_the_estate_is_one_of_the_sites() -> None:
    backup = made().backup
    assert backup is not None
    found = backup_container.declared({**SMALL, "etcd_backup_containers": [OTHER]}, {})
    assert list(found) == [f"{backup.account}/etcd-backup", "copies/etcd"]
    state = found[f"{backup.account}/etcd-backup"]
    assert state is not None
    assert (state["resource_group"], state["retention_days"]) == ("ironspan-example-data", 30)


def test_what_the_inventory_writes_of_it_counts() -> None:
    backup = made().backup
    assert backup is not None
    own = {**OTHER, "account": backup.account, "container": "etcd-backup", "readers": [SUBSCRIPTION]}
    (state,) = backup_container.declared({**SMALL, "etcd_backup_containers": [own]}, {}).values()
    assert state is not None
    assert state["readers"] == [SUBSCRIPTION]


def test_none_without_an_estate() -> None:
    assert backup_container.declared({"etcd_backup_containers": [OTHER]}, {}).keys() == {"copies/etcd"}
    assert backup_container.declared({**SMALL, "azure_backup": {"container": ""}}, {}) == {}
