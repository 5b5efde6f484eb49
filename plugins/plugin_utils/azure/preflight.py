# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What would go wrong before anything is made: rights, quota, names that somebody has. All of it at once."""

from __future__ import annotations

import fnmatch
import typing as t
from collections.abc import Iterable, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure import templates
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.answers import Refused
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.deployment import Wanted
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.deployments import Deployments
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.rest import Rest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.tags import SITE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.versions import api_version

VAULTS, ACCOUNTS = "Microsoft.KeyVault/vaults", "Microsoft.Storage/storageAccounts"
UNREGISTERED = "missingsubscriptionregistration"
"""What Azure says, in lower case, of a provider that a step of the plan registers."""
Needs = Mapping[str, Mapping[str, int]]
"""Id of a resource, in lower case, to what it takes of which quota (``Microsoft.Compute/cores``)."""


class Preflight(t.NamedTuple):
    """What was found before a deployment.

    Args:
        problems: why it cannot be.
        notes: what people should know, the arithmetic of quota among it.
        unregistered: namespaces that the subscription does not use yet.
    """

    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unregistered: tuple[str, ...] = ()


def subscription_problems(rest: Rest, tenant: str) -> list[str]:
    """Return why the subscription is not the one of the data. Raises RemoteError when nobody says."""
    found = rest.get(
        f"/subscriptions/{rest.subscription}",
        api_version("Microsoft.Resources"),
        "to show the subscription",
    )
    if found is None:
        return [f"there is no subscription {rest.subscription} that the controller's identity can see"]
    problems = []
    if tenant and str(found.get("tenantId") or "").lower() != tenant.lower():
        problems.append(
            f"the subscription is of the tenant {found.get('tenantId')}, and azure_tenant says {tenant}"
        )
    state = str(found.get("state") or "Enabled")
    if state.lower() not in ("enabled", "pastdue"):
        problems.append(f"the subscription is {state}: nothing can be made in it")
    return problems


def examined(
    api: Deployments, wanted: Wanted, created: Iterable[str], needs: Needs, deletes: bool
) -> Preflight:
    """Look at everything that could stop a deployment.

    Args:
        api: deployments of the subscription.
        wanted: what is deployed.
        created: ids of what would be made.
        needs: what resources take of quota.
        deletes: whether something is deleted.

    Raises:
        RemoteError: Azure cannot be asked.
    """
    rest = api.rest
    ids = {one.lower() for one in created}
    problems = [one.text() for one in api.validated(wanted) if one.code.lower() != UNREGISTERED]
    problems += _rights(rest, wanted, deletes)
    wrong, notes = quota(rest, wanted.region, {key: value for key, value in needs.items() if key in ids})
    declared = templates.by_id(wanted.template, f"/subscriptions/{rest.subscription}")
    new = [one for key, one in declared.items() if key in ids]
    names = [said for one in new for said in _taken(rest, wanted, one)]
    return Preflight((*problems, *wrong, *names), tuple(notes), tuple(_unregistered(rest, wanted)))


def left_behind(rest: Rest, wanted: Wanted, site: str) -> list[str]:
    """Return ids of resources with the site's tag that are not in the template. Raises as ``examined``.

    A plain deployment deletes nothing; what has left the data is found by its tag.
    """
    listed = rest.listed(
        f"/subscriptions/{rest.subscription}/resources",
        api_version("Microsoft.Resources"),
        "to list the resources of the site",
        **{"$filter": f"tagName eq '{SITE}' and tagValue eq '{site}'"},
    )
    declared = templates.by_id(wanted.template, f"/subscriptions/{rest.subscription}")
    return sorted(str(one["id"]) for one in listed if str(one.get("id")).lower() not in declared)


def types_of(template: Mapping[str, t.Any]) -> list[str]:
    """Return the types of a template's resources, each once."""
    return sorted({str(one["type"]) for one in templates.resources(template)})


def _unregistered(rest: Rest, wanted: Wanted) -> list[str]:
    needed = {kind.partition("/")[0] for kind in types_of(wanted.template)}
    found = rest.listed(
        f"/subscriptions/{rest.subscription}/providers",
        api_version("Microsoft.Resources"),
        "to list the resource providers",
    )
    states = {str(one.get("namespace")).lower(): str(one.get("registrationState")) for one in found}
    # Those of the resource manager itself are registered always, and not listed everywhere.
    always = {"microsoft.resources", "microsoft.authorization"}
    return sorted(
        name
        for name in needed
        if name.lower() not in always and states.get(name.lower(), "").lower() != "registered"
    )


def _rights(rest: Rest, wanted: Wanted, deletes: bool) -> list[str]:
    actions = ["Microsoft.Resources/deployments/write", "Microsoft.Resources/deployments/validate/action"]
    if wanted.stack:
        actions.append("Microsoft.Resources/deploymentStacks/write")
        if wanted.deny.get("mode") != "none":
            actions.append("Microsoft.Resources/deploymentStacks/manageDenySetting/action")
    for kind in types_of(wanted.template):
        named = (
            "Microsoft.Resources/subscriptions/resourceGroups" if kind.endswith("/resourceGroups") else kind
        )
        actions += [f"{named}/write", *([f"{named}/delete"] if deletes else [])]
    scope = f"/subscriptions/{rest.subscription}/providers/Microsoft.Authorization/permissions"
    try:
        found = rest.listed(scope, api_version("Microsoft.Authorization"), "to list the controller's rights")
    except Refused:
        return []
    if not found:
        return []
    missing = [one for one in actions if not any(_allows(permission, one) for permission in found)]
    if not missing:
        return []
    return [f"the controller's identity may not {', '.join(missing)} in the subscription {rest.subscription}"]


def _allows(permission: Mapping[str, t.Any], action: str) -> bool:
    def covered(key: str) -> bool:
        patterns = permission.get(key) or ()
        return any(fnmatch.fnmatchcase(action.lower(), str(one).lower()) for one in patterns)

    return covered("actions") and not covered("notActions")


def quota(rest: Rest, region: str, needs: Needs) -> tuple[list[str], list[str]]:
    """Return what does not fit, and the arithmetic of the rest. Raises RemoteError.

    Args:
        rest: of the subscription.
        region: its short name.
        needs: what is wanted more than there is.
    """
    wanted: dict[str, int] = {}
    for each in needs.values():
        for name, number in each.items():
            wanted[name] = wanted.get(name, 0) + number
    problems, notes = [], []
    for provider in sorted({name.partition("/")[0] for name in wanted}):
        path = f"/subscriptions/{rest.subscription}/providers/{provider}/locations/{region}/usages"
        listed = rest.listed(path, api_version(provider), f"to list the quota of {provider} in {region}")
        found = {f"{provider}/{(one.get('name') or {}).get('value')}".lower(): one for one in listed}
        for name, number in sorted(wanted.items()):
            if name.partition("/")[0] != provider:
                continue
            one = found.get(name.lower())
            if one is None:
                notes.append(f"quota {name}: {number} wanted; Azure names no limit in {region}")
                continue
            used, limit = int(one.get("currentValue") or 0), int(one.get("limit") or 0)
            label = (one.get("name") or {}).get("localizedValue") or name
            said = f"{label} in {region}: {used} used + {number} wanted = {used + number} of {limit}"
            if used + number > limit:
                problems.append(f"quota: {said}")
            else:
                notes.append(f"quota: {said}")
    return problems, notes


def _taken(rest: Rest, wanted: Wanted, resource: Mapping[str, t.Any]) -> list[str]:
    """Return why a name that is unique in the world cannot be had."""
    kind, name = str(resource.get("type")), str(resource.get("name"))
    if kind == VAULTS:
        path = f"/subscriptions/{rest.subscription}/providers/Microsoft.KeyVault"
        region = str(resource.get("location") or wanted.region)
        deleted = rest.get(
            f"{path}/locations/{region}/deletedVaults/{name}",
            api_version("Microsoft.KeyVault"),
            f"to show the deleted vault {name}",
        )
        if deleted is not None:
            until = (deleted.get("properties") or {}).get("scheduledPurgeDate") or "its purge date"
            return [
                f"a vault {name} was deleted and keeps its name until {until}: recover it "
                f"(az keyvault recover --name {name}), or write another name"
            ]
        return _said(rest, f"{path}/checkNameAvailability", "Microsoft.KeyVault", name, kind)
    if kind == ACCOUNTS:
        path = f"/subscriptions/{rest.subscription}/providers/Microsoft.Storage/checkNameAvailability"
        return _said(rest, path, "Microsoft.Storage", name, kind)
    return []


def _said(rest: Rest, path: str, provider: str, name: str, kind: str) -> list[str]:
    try:
        body = {"name": name, "type": kind}
        answer = rest.post(path, api_version(provider), f"whether the name {name} is free", body)
    except Refused:
        return []
    if answer is None or answer.get("nameAvailable", True):
        return []
    return [
        f"the name {name} cannot be had: {answer.get('message') or answer.get('reason') or 'it is taken'}"
    ]
