# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Collects the resources of one resource group, each as Azure Resource Manager reads it."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.versions import api_version
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.ids import (
    group_id,
    resource_id,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.model import Estate

Resource = dict[str, t.Any]
_WITHOUT_PLACE = frozenset(
    {
        # Parts of another resource, and what extends one: they have neither a location nor tags of their own.
        "Microsoft.Authorization/roleAssignments",
        "Microsoft.Authorization/roleDefinitions",
        "Microsoft.KeyVault/vaults/keys",
        "Microsoft.Network/privateDnsZones/A",
        "Microsoft.Network/privateEndpoints/privateDnsZoneGroups",
        "Microsoft.Storage/storageAccounts/blobServices",
        "Microsoft.Storage/storageAccounts/blobServices/containers",
        "Microsoft.Storage/storageAccounts/blobServices/containers/immutabilityPolicies",
        "Microsoft.Storage/storageAccounts/managementPolicies",
    }
)


class Builder:
    """The resources of one part of an estate.

    Args:
        estate: the whole.
        part: one of ``model.PARTS``.
    """

    def __init__(self, estate: Estate, part: str) -> None:
        self.estate = estate
        self.scope = group_id(estate.subscription, estate.groups[part])
        self.resources: list[Resource] = []
        self.ids: set[str] = set()

    def add(
        self,
        kind: str,
        name: str,
        properties: Mapping[str, t.Any],
        depends: Iterable[str] = (),
        tags: Mapping[str, str] | None = None,
        location: str = "",
        scope: str = "",
        more: Mapping[str, t.Any] | None = None,
    ) -> str:
        """Add a resource and return its id.

        Args:
            kind: its type.
            name: its name, with those of the resources around it.
            properties: what its type asks for.
            depends: ids of what must be there before; what is of other parts is left out, their order is
                given.
            tags: beside those of everything.
            location: in the place of the estate's region.
            scope: id of the resource that it extends.
            more: further keys beside properties, such as ``sku`` or ``zones``.
        """
        made = resource_id(scope or self.scope, kind, name)
        resource: Resource = {"type": kind, "apiVersion": api_version(kind), "name": name}
        if scope:
            resource["scope"] = scope
        if kind not in _WITHOUT_PLACE:
            resource["location"] = location or self.estate.region
            resource["tags"] = {**self.estate.tags, **(tags or {})}
        resource |= more or {}
        before = sorted({one for one in depends if one in self.ids})
        if before:
            resource["dependsOn"] = before
        resource["properties"] = dict(properties)
        self.resources.append(resource)
        self.ids.add(made)
        return made

    def id_of(self, kind: str, name: str) -> str:
        """Return the id that a resource of this part has."""
        return resource_id(self.scope, kind, name)

    def template(self) -> dict[str, t.Any]:
        """Return the template of all of them."""
        return {
            "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
            "contentVersion": "1.0.0.0",
            "resources": self.resources,
        }
