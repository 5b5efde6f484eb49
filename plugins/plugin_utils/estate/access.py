# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Identities of machines and pools, and what each may do: one role for a purpose, on one thing."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.versions import api_version
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.build import Builder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.ids import named_by
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.model import Estate

_IDENTITY = "Microsoft.ManagedIdentity/userAssignedIdentities"
_ASSIGNMENT = "Microsoft.Authorization/roleAssignments"


@dataclasses.dataclass(frozen=True, slots=True)
class Grant:
    """One role, for one identity, on one thing.

    Args:
        scope: resource id of the thing.
        role: UUID of the role's definition.
        identity: resource id of the identity of the estate's; "" for another.
        principal: object id of one that is not of the estate.
    """

    scope: str
    role: str
    identity: str = ""
    principal: str = ""


def identities(estate: Estate) -> dict[str, tuple[str, ...]]:
    """Return the identities of the estate, each with its pool, or its machine and groups."""
    found = {machine.identity: (machine.name, *machine.groups) for machine in estate.machines}
    found |= {pool.identity: (pool.name,) for pool in estate.pools}
    return found | ({estate.gateway.identity: ()} if estate.gateway and estate.gateway.peers else {})


def add_identities(build: Builder) -> None:
    """Add them."""
    for identity in identities(build.estate):
        build.add(_IDENTITY, identity.rpartition("/")[2], {})


def add_grant(build: Builder, grant: Grant, after: t.Iterable[str] = ()) -> None:
    """Add a role assignment.

    Its name follows from all three parts: Azure refuses to change what one that exists is for. An identity
    that was made again under its name has another object id, and its assignments must be deleted before.

    Args:
        build: of the part with identities.
        grant: what is granted.
        after: ids of what must be there before, beside the identity and the thing.
    """
    estate = build.estate
    version = api_version(_IDENTITY)
    principal = (
        f"[reference('{grant.identity}', '{version}').principalId]" if grant.identity else grant.principal
    )
    properties = {
        "roleDefinitionId": f"/subscriptions/{estate.subscription}/providers/Microsoft.Authorization"
        f"/roleDefinitions/{grant.role}",
        "principalId": principal,
    }
    # Without it Azure looks a new identity up in a directory that may not know it yet.
    properties |= {"principalType": "ServicePrincipal"} if grant.identity else {}
    name = named_by(grant.scope, grant.identity or grant.principal, grant.role)
    depends = [grant.scope, grant.identity, *after]
    build.add(_ASSIGNMENT, name, properties, depends=depends, scope=grant.scope)
