# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Key vaults and storage accounts."""

from __future__ import annotations

from ironspan.lab.azure import settings
from ironspan.lab.azure.arm.errors import ArmError
from ironspan.lab.azure.arm.rules.common import Rules, Write, check_name, guid, named
from ironspan.lab.azure.arm.state import Resource, State, subscription_scope

VAULT, ACCOUNT = "Microsoft.KeyVault/vaults", "Microsoft.Storage/storageAccounts"
CONTAINERS = f"{ACCOUNT}/blobServices/containers"
_VAULT_NAME = r"[A-Za-z](?!.*--)[A-Za-z0-9-]{1,22}[A-Za-z0-9]"
_ACCOUNT_NAME = r"[a-z0-9]{3,24}"


def vault_problem(state: State, name: str) -> tuple[str, str] | None:
    """Return why a vault cannot have a name: reason and message; None when it can."""
    if name.lower() in (one.lower() for one in state.settings.taken):
        return "AlreadyExists", f"The vault name '{name}' is already in use by somebody else."
    if name.lower() in state.deleted_vaults:
        return "AlreadyExists", f"The name '{name}' is in use by a vault that is deleted but recoverable."
    if any(one.document["name"].lower() == name.lower() for one in state.of_type(VAULT)):
        return "AlreadyExists", f"The vault name '{name}' is already in use."
    return None


def _vault_preflight(write: Write) -> None:
    check_name(write, _VAULT_NAME, "VaultNameNotValid")
    properties = write.properties
    if str(properties.get("tenantId", "")).lower() != settings.TENANT:
        raise ArmError(
            400,
            "BadRequest",
            f"The tenantId '{properties.get('tenantId')}' is not that of the subscription.",
            target="tenantId",
        )
    recovering = properties.get("createMode") == "recover"
    if write.old is None and not recovering:
        problem = vault_problem(write.state, write.id.name)
        if problem is not None:
            raise ArmError(
                409,
                "ConflictError"
                if write.id.name.lower() in write.state.deleted_vaults
                else "VaultAlreadyExists",
                f"{problem[1]} Vault names are globally unique. A vault of that name may exist in a "
                "deleted state: recover it with createMode 'recover', or purge it.",
            )
    if write.kept("properties", "enablePurgeProtection") and properties.get("enablePurgeProtection") is False:
        raise ArmError(
            400,
            "BadRequest",
            'The property "enablePurgeProtection" cannot be set to false. Enabling the purge protection is '
            "an irreversible action.",
        )


def _vault_complete(write: Write) -> None:
    properties = write.properties
    properties.pop("createMode", None)
    old = write.state.deleted_vaults.pop(write.id.name.lower(), None)
    if old is not None:
        properties.setdefault(
            "enablePurgeProtection", old["document"]["properties"].get("enablePurgeProtection")
        )
    if write.kept("properties", "enablePurgeProtection"):
        properties["enablePurgeProtection"] = True
    properties["vaultUri"] = f"https://{write.id.name.lower()}.vault.azure.net/"
    write.default(
        accessPolicies=[], enabledForDeployment=False, enableSoftDelete=True, softDeleteRetentionInDays=90,
        publicNetworkAccess="Enabled",
    )  # fmt: skip


def _vault_deleted(state: State, resource: Resource) -> None:
    if resource.properties.get("enableSoftDelete", True):
        name = str(resource.document["name"])
        state.deleted_vaults[name.lower()] = {"document": resource.document, "deleted": state.stamp()}


def deleted_vault(state: State, name: str, location: str) -> dict[str, object]:
    """Return a deleted vault's document. Raises ArmError."""
    kept = state.deleted_vaults.get(name.lower())
    if kept is None:
        raise ArmError(404, "DeletedVaultNotFound", f"The specified deleted vault {name!r} does not exist.")
    document = kept["document"]
    place = f"{subscription_scope()}/providers/Microsoft.KeyVault/locations/{location}/deletedVaults"
    return {
        "id": f"{place}/{document['name']}",
        "name": document["name"],
        "type": "Microsoft.KeyVault/deletedVaults",
        "properties": {
            "vaultId": document["id"],
            "location": document.get("location"),
            "tags": document.get("tags") or {},
            "deletionDate": kept["deleted"],
            "purgeProtectionEnabled": bool(document["properties"].get("enablePurgeProtection")),
        },
    }


def purge(state: State, name: str, location: str) -> None:
    """Take a deleted vault for good. Raises ArmError."""
    found = deleted_vault(state, name, location)
    properties = found["properties"]
    if isinstance(properties, dict) and properties["purgeProtectionEnabled"]:
        raise ArmError(
            409,
            "DeletedVaultPurgeProtected",
            f"The vault {name!r} has purge protection; it stays until its retention ends.",
        )
    del state.deleted_vaults[name.lower()]


def _key_complete(write: Write) -> None:
    """A key is made once; another PUT changes nothing, as in Azure."""
    if write.old is not None:
        write.document.clear()
        write.document.update(write.old.document)
        return
    vault = write.id.parent.name.lower() if write.id.parent is not None else ""
    properties = write.properties
    uri = f"https://{vault}.vault.azure.net/keys/{write.id.name}"
    properties["keyUri"] = uri
    properties["keyUriWithVersion"] = f"{uri}/{guid().replace('-', '')}"
    properties.setdefault("keyOps", ["wrapKey", "decrypt", "encrypt", "unwrapKey", "sign", "verify"])
    properties.setdefault("attributes", {"enabled": True, "exportable": False})


def account_problem(state: State, name: str) -> tuple[str, str] | None:
    """Return why a storage account cannot have a name: reason and message; None when it can."""
    taken = {settings.ACCOUNT, *state.settings.taken}
    taken |= {str(one.document["name"]) for one in state.of_type(ACCOUNT)}
    if name in taken:
        return "AlreadyExists", f"The storage account named {name} is already taken."
    return None


def _account_preflight(write: Write) -> None:
    check_name(write, _ACCOUNT_NAME, "AccountNameInvalid")
    problem = account_problem(write.state, write.id.name)
    if write.old is None and problem is not None:
        raise ArmError(409, "StorageAccountAlreadyTaken", problem[1])
    before = write.kept("properties", "isHnsEnabled")
    if write.old is not None and bool(before) != bool(write.properties.get("isHnsEnabled", before)):
        raise ArmError(
            400, "AccountPropertyCannotBeUpdated", "The property 'isHnsEnabled' cannot be updated."
        )


def _account_complete(write: Write) -> None:
    name = write.id.name
    hierarchical = bool(write.properties.get("isHnsEnabled"))
    write.document.setdefault("sku", {})["tier"] = str(write.document["sku"].get("name", "")).partition("_")[
        0
    ]
    write.properties["primaryEndpoints"] = {
        "blob": f"https://{name}.blob.core.windows.net/", "dfs": f"https://{name}.dfs.core.windows.net/",
    }  # fmt: skip
    write.keep(creationTime=write.state.stamp())
    write.properties.update(primaryLocation=write.document.get("location"), statusOfPrimary="available")
    write.default(accessTier="Hot", isHnsEnabled=hierarchical, supportsHttpsTrafficOnly=True)
    write.default(privateEndpointConnections=[], allowCrossTenantReplication=False)
    encryption = write.properties.setdefault("encryption", {})
    encryption.setdefault("keySource", "Microsoft.Storage")
    encryption.setdefault("services", {"blob": {"enabled": True, "keyType": "Account"}})
    acls = write.properties.setdefault("networkAcls", {"bypass": "AzureServices", "defaultAction": "Allow"})
    for rules in ("ipRules", "virtualNetworkRules"):
        acls.setdefault(rules, [])


def _account_deletable(state: State, resource: Resource) -> None:
    for one in state.inside(resource.id):
        held = (
            one.properties.get("immutabilityPeriodSinceCreationInDays")
            and one.properties.get("state") == "Locked"
        )
        if one.type.lower().endswith("/immutabilitypolicies") and held:
            raise ArmError(
                409,
                "AccountProtectedFromDeletion",
                f"The account has a container with a locked policy: {one.id}.",
            )


def _container_preflight(write: Write) -> None:
    check_name(write, r"[a-z0-9](?!.*--)[a-z0-9-]{1,61}[a-z0-9]", "ContainerOperationFailure")


def _container_complete(write: Write) -> None:
    write.default(publicAccess="None", leaseStatus="Unlocked", leaseState="Available")
    write.default(
        hasImmutabilityPolicy=False, hasLegalHold=False, defaultEncryptionScope="$account-encryption-key"
    )
    write.default(denyEncryptionScopeOverride=False)
    for name in ("hasImmutabilityPolicy", "immutabilityPolicy"):
        kept = write.kept("properties", name)
        if kept is not None:
            write.properties[name] = kept


def _policy_check(write: Write) -> None:
    if write.kept("properties", "state") == "Locked":
        before = int(write.kept("properties", "immutabilityPeriodSinceCreationInDays") or 0)
        after = int(write.properties.get("immutabilityPeriodSinceCreationInDays") or 0)
        if after < before:
            raise ArmError(
                412,
                "ImmutabilityPolicyCannotBeShortened",
                f"A locked policy of {before} days cannot become {after}.",
            )


def _policy_complete(write: Write) -> None:
    write.properties["state"] = write.kept("properties", "state") or "Unlocked"
    write.default(allowProtectedAppendWrites=False, allowProtectedAppendWritesAll=False)
    write.document["etag"] = f'"{guid()}"'
    container = write.state.find(write.id.parent.text) if write.id.parent is not None else None
    if container is not None:
        container.properties["hasImmutabilityPolicy"] = True


def _service_complete(write: Write) -> None:
    write.default(cors={"corsRules": []}, deleteRetentionPolicy={"enabled": False})


def _policies_complete(write: Write) -> None:
    write.properties["lastModifiedTime"] = write.state.stamp()
    for rule in named((write.properties.get("policy") or {}).get("rules")):
        rule.setdefault("enabled", True)


RULES = {
    VAULT: Rules(_vault_preflight, complete=_vault_complete, deleted=_vault_deleted),
    f"{VAULT}/keys": Rules(complete=_key_complete),
    ACCOUNT: Rules(_account_preflight, complete=_account_complete, deletable=_account_deletable),
    f"{ACCOUNT}/blobServices": Rules(complete=_service_complete),
    CONTAINERS: Rules(_container_preflight, complete=_container_complete),
    f"{CONTAINERS}/immutabilityPolicies": Rules(check=_policy_check, complete=_policy_complete),
    f"{ACCOUNT}/managementPolicies": Rules(complete=_policies_complete),
}
