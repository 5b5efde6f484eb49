# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The estate of a site in Azure: networks, machines, disks, identities, accounts, as one deployment.

What is deployed is the template that the plan carries, and no other. Azure deletes nothing that the plan does
not name: what leaves the data stays, unless ``azure_unmanaged`` says otherwise and consent is given.
"""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.connection import connection
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.deployment import digest_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.deployments import Deployments
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate import declared as estate_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate import facts
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.ids import group_id, resource_id
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.model import Estate
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.template import template
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError, State
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds._azure_estate import AzureEstate

MANAGEMENT, UNMANAGED = "azure_management", "azure_unmanaged"
VARIABLES = tuple(estate_of.VARIABLES)


def declared(variables: Mapping[str, t.Any], arguments: Mapping[str, t.Any]) -> dict[str, State | None]:
    """Return the site's estate.

    Raises:
        RemoteError: the site has none, or none can be made of its data.
    """
    estate = estate_of.declared(variables)
    if estate is None:
        raise RemoteError("this site has no estate in Azure", "write azure_subscription, see docs/azure.md")
    return {estate.name: wanted(estate, str(variables.get(UNMANAGED) or "detach"))}


def wanted(estate: Estate, unmanaged: str) -> State:
    """Return an estate as a plan carries it: with the template itself, and its digest.

    Args:
        estate: of the site.
        unmanaged: ``detach`` or ``delete``: what becomes of resources that have left the data.
    """
    made = template(estate)
    deny = estate.deny
    return {
        "site": estate.site,
        "subscription": estate.subscription,
        "tenant": estate.tenant,
        "region": estate.region,
        "deployment": estate.name,
        "how": estate.deployment,
        "unmanaged": unmanaged,
        "deny": {
            "mode": deny.mode,
            "excludedPrincipals": list(deny.principals),
            "excludedActions": list(deny.actions),
            "applyToChildScopes": False,
        },
        "digest": digest_of(made),
        "facts": [str(one) for one in facts.facts(estate)],
        "needs": needs_of(estate),
        "template": made,
    }


def needs_of(estate: Estate) -> dict[str, dict[str, int]]:
    """Return what each machine and pool takes of quota, by resource id in lower case."""
    found: dict[str, dict[str, int]] = {}
    bare = dataclasses.replace(estate, machines=(), pools=())
    for machine in estate.machines:
        group = group_id(estate.subscription, estate.groups["machines"])
        place = resource_id(group, "Microsoft.Compute/virtualMachines", machine.name)
        found[place.lower()] = _more(bare, dataclasses.replace(bare, machines=(machine,)))
    for pool in estate.pools:
        group = group_id(estate.subscription, estate.groups["nodes"])
        name = estate.name_of(f"pool-{pool.name}")
        place = resource_id(group, "Microsoft.Compute/virtualMachineScaleSets", name)
        found[place.lower()] = _more(bare, dataclasses.replace(bare, pools=(pool,)))
    return found


def _more(without: Estate, with_it: Estate) -> dict[str, int]:
    before, after = facts.needs(without), facts.needs(with_it)
    return {
        f"{provider}/{name}": number - before.get((provider, name), 0)
        for (provider, name), number in after.items()
        if number > before.get((provider, name), 0)
    }


def opened(variables: Mapping[str, t.Any]) -> AzureEstate:
    """Return the kind; Azure is spoken to once something is asked."""
    settings = {**(variables.get(MANAGEMENT) or {})}
    return AzureEstate(lambda subscription: Deployments(connection(settings), subscription))
