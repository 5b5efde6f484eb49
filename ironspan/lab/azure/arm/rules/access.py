# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Identities, role definitions and role assignments."""

from __future__ import annotations

import re

from ironspan.lab.azure import settings
from ironspan.lab.azure.arm import ids
from ironspan.lab.azure.arm.errors import ArmError
from ironspan.lab.azure.arm.rules.common import Rules, Write, check_name, stable_guid
from ironspan.lab.azure.arm.state import Resource, State

IDENTITY = "Microsoft.ManagedIdentity/userAssignedIdentities"
ASSIGNMENT, DEFINITION = "Microsoft.Authorization/roleAssignments", "Microsoft.Authorization/roleDefinitions"
_GUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
#: Built-in roles that estates use: the ids are the same in every tenant.
BUILT_IN = {
    "ba92f5b4-2d11-453d-a403-e96b0029c9fe": "Storage Blob Data Contributor",
    "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1": "Storage Blob Data Reader",
    "b7e6dc6d-f1e8-4753-8033-0f276bb0955b": "Storage Blob Data Owner",
    "e147488a-f6f5-4113-8e2d-b22465e65bf6": "Key Vault Crypto Service Encryption User",
    "12338af0-0e69-4776-bea7-57ae8d297424": "Key Vault Crypto User",
    "14b46e9e-c2b7-41b4-b07b-48a6ebf60603": "Key Vault Crypto Officer",
    "4633458b-17de-408a-b874-0445c86b69e6": "Key Vault Secrets User",
    "b86a8fe4-44ce-4948-aee5-eccb2c155cd7": "Key Vault Secrets Officer",
    "00482a5a-887f-4fb3-b363-3b7fe8e74483": "Key Vault Administrator",
    "21090545-7ca7-4776-b22c-e363652d74d2": "Key Vault Reader",
    "4d97b98b-1d4f-4787-a291-c67834d212e7": "Network Contributor",
    "b12aa53e-6015-4669-85d0-8515ebb3ae7f": "Private DNS Zone Contributor",
    "a959dbd1-f747-45e3-8ba6-dd80f235f97c": "Virtual Machine Contributor",
    "9980e02c-c2be-4d73-94e8-173b1dc7cf3c": "Virtual Machine Contributor",
    "f1a07417-d97a-45cb-824c-7a7467783830": "Managed Identity Operator",
    "f58310d9-a9f6-439a-9e8d-f62e7b41a168": "Role Based Access Control Administrator",
    "8311e382-0749-4cb8-b61a-304f252e45ec": "AcrPull",
    "acdd72a7-3385-48ef-bd42-f606fba81ae7": "Reader",
    "b24988ac-6180-42a0-ab88-20f7382dd24c": "Contributor",
    "8e3af657-a8ff-443c-a75c-2fe8c4bcb635": "Owner",
}


def _identity_preflight(write: Write) -> None:
    check_name(write, r"[A-Za-z0-9][A-Za-z0-9_-]{2,127}")


def _identity_complete(write: Write) -> None:
    # A new identity of an old name is another principal, as in Azure.
    salt = f"{write.id.key} {write.state.now()}"
    write.properties["tenantId"] = settings.TENANT
    write.keep(principalId=stable_guid(f"principal {salt}"), clientId=stable_guid(f"client {salt}"))


def _credential_complete(write: Write) -> None:
    write.default(audiences=["api://AzureADTokenExchange"])


def _definition_preflight(write: Write) -> None:
    if not _GUID.fullmatch(write.id.name):
        raise ArmError(
            400, "RoleDefinitionIdNotGuid", f"The role definition id '{write.id.name}' is no GUID."
        )
    for one in write.state.of_type(DEFINITION):
        same = one.properties.get("roleName") == write.properties.get("roleName")
        if same and one.document["name"].lower() != write.id.name.lower():
            raise ArmError(
                409,
                "RoleDefinitionWithSameNameExists",
                f"A custom role with the same name '{one.properties.get('roleName')}' already exists in "
                "this directory. Use a different name.",
            )


def _definition_complete(write: Write) -> None:
    write.default(type="CustomRole", assignableScopes=[write.id.scope])
    for permission in write.properties.get("permissions") or []:
        for name in ("actions", "notActions", "dataActions", "notDataActions"):
            permission.setdefault(name, [])


def _definition_deletable(state: State, resource: Resource) -> None:
    for one in state.of_type(ASSIGNMENT):
        if str(one.properties.get("roleDefinitionId")).lower().endswith(resource.document["name"].lower()):
            raise ArmError(
                400,
                "RoleDefinitionHasAssignments",
                f"There are existing role assignments referencing role (code: {resource.document['name']}).",
            )


def principal(state: State, object_id: str) -> Resource | None:
    """Return the identity of the estate with this object id."""
    for one in state.of_type(IDENTITY):
        if str(one.properties.get("principalId")).lower() == object_id.lower():
            return one
    return None


def _assignment_preflight(write: Write) -> None:
    if not _GUID.fullmatch(write.id.name):
        raise ArmError(
            400, "InvalidRoleAssignmentId", f"The role assignment ID '{write.id.name}' must be a GUID."
        )


def _assignment_check(write: Write) -> None:
    properties = write.properties
    role = str(properties.get("roleDefinitionId", "")).rpartition("/")[2].lower()
    custom = any(one.document["name"].lower() == role for one in write.state.of_type(DEFINITION))
    own = any(role == settings.identifier(f"role-{name}") for name in settings.ROLES)
    if role not in BUILT_IN and not custom and not own:
        raise ArmError(
            400,
            "RoleDefinitionDoesNotExist",
            f"The specified role definition with ID '{role}' does not exist.",
        )
    if not properties.get("principalType"):
        _check_principal(write.state, str(properties.get("principalId")))
    if write.old is not None:
        for name in ("principalId", "roleDefinitionId"):
            before, after = str(write.old.properties.get(name)), str(properties.get(name))
            if before.rpartition("/")[2].lower() != after.rpartition("/")[2].lower():
                raise ArmError(
                    400,
                    "RoleAssignmentUpdateNotPermitted",
                    "Tenant ID, application ID, principal ID, and scope are not allowed to be updated.",
                )
    for one in write.state.of_type(ASSIGNMENT):
        if (
            one.key != write.id.key
            and ids.same(one.properties.get("scope"), write.id.scope)
            and str(one.properties.get("principalId")).lower() == str(properties.get("principalId")).lower()
            and str(one.properties.get("roleDefinitionId")).lower().endswith(role)
        ):
            raise ArmError(
                409,
                "RoleAssignmentExists",
                "The role assignment already exists. The ID of the existing role assignment is "
                f"{one.document['name']}.",
            )


def _check_principal(state: State, object_id: str) -> None:
    """Refuse a principal that the directory does not show yet; a principalType makes Azure not look."""
    found = principal(state, object_id)
    waits = found is not None and state.now() < found.created + state.settings.role_delay_s
    if waits or (found is None and settings.by_object(object_id) is None):
        raise ArmError(
            400,
            "PrincipalNotFound",
            f"Principal {object_id.replace('-', '')} does not exist in the directory {settings.TENANT}. "
            "Check that you have the correct principal ID. If you are creating this principal and then "
            "immediately assigning a role, this error might be related to a replication delay. In this "
            "case, set the role assignment principalType property to a value, such as ServicePrincipal, "
            "User, or Group.",
        )


def _assignment_complete(write: Write) -> None:
    write.default(principalType="ServicePrincipal")
    write.properties["scope"] = write.id.scope
    write.keep(createdOn=write.state.stamp(), updatedOn=write.state.stamp(), createdBy="", updatedBy="")


RULES = {
    IDENTITY: Rules(_identity_preflight, complete=_identity_complete),
    f"{IDENTITY}/federatedIdentityCredentials": Rules(complete=_credential_complete),
    DEFINITION: Rules(_definition_preflight, complete=_definition_complete, deletable=_definition_deletable),
    ASSIGNMENT: Rules(_assignment_preflight, _assignment_check, _assignment_complete),
}
