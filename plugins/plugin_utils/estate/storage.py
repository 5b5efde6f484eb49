# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Storage accounts, for backups of etcd and for weights and checkpoints; without keys, by endpoints only."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.roles import ROLES
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.roles import Role as BackupRole
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.access import (
    Grant,
    add_grant,
    identities,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.build import Builder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.endpoints import add_endpoint
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.ids import named_by, short_hash
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.model import ETCD, Estate
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.services import Backup, Storage
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.formats import fault_of

READER = "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"
"""Storage Blob Data Reader."""
CONTRIBUTOR = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
"""Storage Blob Data Contributor."""
_ACCOUNT = "Microsoft.Storage/storageAccounts"
_SERVICE = f"{_ACCOUNT}/blobServices"
_DAYS_DELETED = 7
_DRILLS = "etcd_drill"


def add_backup(build: Builder) -> None:
    """Add the account of backups, with the roles that ironspan checks everywhere.

    The policy that keeps its content is made by ``playbooks/backup_store.yml``: once it is locked, Azure
    refuses each deployment that has it in it.
    """
    backup = build.estate.backup
    if backup is None:
        return
    if not backup.exists:
        account = _account(build, backup.account, backup.redundancy, hierarchical=False)
        container = _container(build, account, backup.account, backup.container)
        for role in ROLES:
            who = _backup_grants(build.estate, backup, role, container)
            definition = _definition(build, role) if who else ""
            for grant in who:
                add_grant(build, grant, [definition])
    add_endpoint(build, "backup", backup.id, "blob")


def add_storage(build: Builder) -> None:
    """Add the accounts of weights and checkpoints."""
    for storage in build.estate.storage:
        if not storage.exists:
            account = _account(build, storage.account, storage.redundancy, hierarchical=storage.hierarchical)
            for name in storage.containers:
                container = _container(build, account, storage.account, name)
                for grant in _storage_grants(build.estate, storage, container):
                    add_grant(build, grant)
            _lifecycle(build, storage, account)
        add_endpoint(build, storage.name, storage.id, "blob")
        if storage.hierarchical:
            add_endpoint(build, f"{storage.name}-dfs", storage.id, "dfs")


def _account(build: Builder, name: str, redundancy: str, *, hierarchical: bool) -> str:
    properties = {
        "accessTier": "Hot",
        "allowBlobPublicAccess": False,
        "allowCrossTenantReplication": False,
        "allowSharedKeyAccess": False,
        "defaultToOAuthAuthentication": True,
        "encryption": {
            "keySource": "Microsoft.Storage",
            "requireInfrastructureEncryption": True,
            "services": {"blob": {"enabled": True, "keyType": "Account"}},
        },
        "isHnsEnabled": hierarchical,
        "isLocalUserEnabled": False,
        "isSftpEnabled": False,
        "minimumTlsVersion": "TLS1_2",
        "networkAcls": {"bypass": "None", "defaultAction": "Deny", "ipRules": [], "virtualNetworkRules": []},
        "publicNetworkAccess": "Disabled",
        "supportsHttpsTrafficOnly": True,
    }
    more = {"kind": "StorageV2", "sku": {"name": f"Standard_{redundancy}"}}
    account = build.add(_ACCOUNT, name, properties, more=more)
    kept = {"enabled": True, "days": _DAYS_DELETED}
    service: dict[str, t.Any] = {"deleteRetentionPolicy": kept, "containerDeleteRetentionPolicy": kept}
    if not hierarchical:  # Azure has no versions of files in real folders
        service["isVersioningEnabled"] = True
    build.add(_SERVICE, f"{name}/default", service, depends=[account])
    return account


def _container(build: Builder, account: str, name: str, container: str) -> str:
    service = f"{account}/blobServices/default"
    kind = f"{_SERVICE}/containers"
    return build.add(
        kind, f"{name}/default/{container}", {"publicAccess": "None"}, depends=[account, service]
    )


def role_id(estate: Estate, role: BackupRole) -> str:
    """Return the UUID of the definition of one of the backup's roles."""
    return named_by(estate.subscription, estate.groups["data"], role.key)


def _definition(build: Builder, role: BackupRole) -> str:
    estate = build.estate
    made = role.definition(build.scope)
    # A tenant has each name of a custom role once.
    own = short_hash(estate.subscription, estate.groups["data"])
    permissions = {
        "actions": made["Actions"],
        "notActions": made["NotActions"],
        "dataActions": made["DataActions"],
        "notDataActions": made["NotDataActions"],
    }
    return build.add(
        "Microsoft.Authorization/roleDefinitions",
        role_id(estate, role),
        {
            "roleName": f"{made['Name']} ({estate.site} {own})",
            "type": "CustomRole",
            "description": made["Description"],
            "permissions": [permissions],
            "assignableScopes": made["AssignableScopes"],
        },
    )


def _backup_grants(estate: Estate, backup: Backup, role: BackupRole, container: str) -> list[Grant]:
    machines = {"writers": ETCD, "drills": _DRILLS}.get(role.key, "")
    people = {"collectors": backup.collectors, "readers": backup.readers}.get(role.key, ())
    found = role_id(estate, role)
    return [
        *(Grant(container, found, machine.identity) for machine in estate.in_group(machines)),
        *(Grant(container, found, principal=person) for person in people),
    ]


def _storage_grants(estate: Estate, storage: Storage, container: str) -> Iterable[Grant]:
    for role, wanted in ((READER, storage.readers), (CONTRIBUTOR, storage.writers)):
        for identity, known_as in identities(estate).items():
            if set(known_as) & set(wanted):
                yield Grant(container, role, identity)
        for person in wanted:
            if not fault_of(person, "uuid"):
                yield Grant(container, role, principal=person)


def _lifecycle(build: Builder, storage: Storage, account: str) -> None:
    after = "daysAfterModificationGreaterThan"
    actions = {
        key: {after: days}
        for key, days in (("tierToCool", storage.cool_after_days), ("delete", storage.delete_after_days))
        if days
    }
    if not actions:
        return
    rule = {
        "name": "age",
        "enabled": True,
        "type": "Lifecycle",
        "definition": {"actions": {"baseBlob": actions}, "filters": {"blobTypes": ["blockBlob"]}},
    }
    policy = {"policy": {"rules": [rule]}}
    build.add(f"{_ACCOUNT}/managementPolicies", f"{storage.account}/default", policy, depends=[account])
