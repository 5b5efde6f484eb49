# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The one deployment that an estate is made by, as a template of Azure Resource Manager.

Everything in it is literal, so what a plan has shown is what is sent: no parameters, no loops, and as the
only expression the object id of an identity that the deployment itself makes.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.versions import api_version
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.access import add_identities
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.build import Builder, Resource
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.endpoints import add_others
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.gateway import add_gateway
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.ids import (
    group_id,
    resource_id,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.machines import add_machines
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.model import PARTS, Estate
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.network import add_network
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.pools import add_pools
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.storage import add_backup, add_storage
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.vault import add_vault

Add = Callable[[Builder], None]
_CONTENT: Mapping[str, tuple[Add, ...]] = {
    "network": (add_network,),
    "data": (add_identities, add_vault, add_backup, add_storage, add_others),
    "gateway": (add_gateway,),
    "machines": (add_machines,),
    "nodes": (add_pools,),
}
_BEFORE: Mapping[str, tuple[str, ...]] = {
    "network": (),
    "data": ("network",),
    # In the network's group, and apart from it: nobody waits the 45 minutes that Azure takes for one.
    "gateway": ("network", "data"),
    "machines": ("network", "data"),
    "nodes": ("network", "data"),
}
_GROUPS, _DEPLOYMENTS = "Microsoft.Resources/resourceGroups", "Microsoft.Resources/deployments"


def template(estate: Estate) -> dict[str, t.Any]:
    """Return the template, for the scope of the subscription.

    Args:
        estate: what is to be there.
    """
    inner = {}
    for part in _CONTENT:
        build = Builder(estate, _group_of(part))
        for add in _CONTENT[part]:
            add(build)
        if build.resources:
            inner[part] = build.template()
    groups = [
        {
            "type": _GROUPS,
            "apiVersion": api_version(_GROUPS),
            "name": name,
            "location": estate.region,
            "tags": dict(estate.tags),
            "properties": {},
        }
        for name in dict.fromkeys(estate.groups[_group_of(part)] for part in inner)
    ]
    return {
        "$schema": "https://schema.management.azure.com/schemas/2018-05-01/subscriptionDeploymentTemplate.json#",
        "contentVersion": "1.0.0.0",
        "resources": [*groups, *(_nested(estate, part, inner) for part in inner)],
    }


def _nested(estate: Estate, part: str, inner: Mapping[str, dict[str, t.Any]]) -> Resource:
    group = group_id(estate.subscription, estate.groups[_group_of(part)])
    before = [_deployment_id(estate, one) for one in _BEFORE[part] if one in inner]
    return {
        "type": _DEPLOYMENTS,
        "apiVersion": api_version(_DEPLOYMENTS),
        "name": f"{estate.name}-{part}",
        "resourceGroup": estate.groups[_group_of(part)],
        "dependsOn": [group, *before],
        "properties": {
            "mode": "Incremental",
            "expressionEvaluationOptions": {"scope": "inner"},
            "template": inner[part],
        },
    }


def _deployment_id(estate: Estate, part: str) -> str:
    return resource_id(
        group_id(estate.subscription, estate.groups[_group_of(part)]), _DEPLOYMENTS, f"{estate.name}-{part}"
    )


def _group_of(part: str) -> str:
    return part if part in PARTS else "network"
