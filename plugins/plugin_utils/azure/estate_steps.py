# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What deploying an estate does, as the steps of a plan. Asks nobody."""

from __future__ import annotations

import collections
import typing as t
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure import effects
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.deployment import Standing
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.whatif import Change, Foreseen, Property
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import State, Step

DEPLOY, REGISTER, DELETE, DETACH, RESTART = "deploy", "register", "delete", "detach", "restart"
_SECONDS: Mapping[str, int] = {
    "microsoft.network/virtualnetworkgateways": 45 * 60,
    "microsoft.compute/virtualmachines": 180,
    "microsoft.network/privateendpoints": 90,
}
"""Longest that a resource of a type usually takes; what a deployment makes, it makes side by side."""
_NAMED = 6


def steps(title: str, digest: str, found: State) -> list[Step]:
    """Return what deploying does, named, and the deployment itself, which is always the last.

    The deployment does all of it in one go; what is named before stands there to be read and consented to.

    Args:
        title: name of the deployment.
        digest: of its template.
        found: the state of an estate, as the kind finds it.
    """
    if found.get("running"):
        return [Step(DEPLOY, f"follow {title}, which is being deployed, until all of it is there")]
    changes = [_change(one) for one in found["changes"]]
    foreseen = [one for one in changes if one.kind != "unsupported"]
    # What Azure foresees nothing of is deployed once with each template, and not in every run.
    if not foreseen and found["state"] == "succeeded" and (not changes or found["digest"] == digest):
        return []
    made = [
        Step(
            f"{REGISTER} {namespace}",
            f"register the resource provider {namespace} in the subscription",
            seconds=60,
        )
        for namespace in found.get("unregistered") or ()
    ]
    made += [_deletion(one) for one in changes if one.kind == "delete"]
    made += [
        Step(
            f"{DETACH} {one.id.lower()}",
            f"stop managing {called(one)}: it left the data, and stays in Azure",
        )
        for one in changes
        if one.kind == "detach"
    ]
    made += [
        Step(
            f"{RESTART} {one.id.lower()}",
            f"restart {called(one)}: {'; '.join(why)}",
            disruption=f"{one.name} stops and starts again",
        )
        for one in changes
        if (why := effects.restarts(one))
    ]
    return [*made, _deployment(title, changes)]


def notes(foreseen: Foreseen, changes: list[Change], standing: Standing | None) -> list[str]:
    """Return what people should know of a deployment beside its steps."""
    said = [
        f"changes {called(one)}: {prop.text()}"
        for one in changes
        if one.kind == "modify"
        for prop in one.properties
    ]
    said += [
        f"may change {called(one)}: Azure cannot say ({one.reason or 'no reason given'})"
        for one in changes
        if one.kind == "unsupported"
    ]
    if foreseen.hidden:
        counted = ", ".join(f"{number} by {rule}" for rule, number in foreseen.hidden.items())
        said.append(
            f"{sum(foreseen.hidden.values())} differences hidden as noise of what-if: {counted} "
            "(docs/azure-apply.md)"
        )
    said += [f"Azure says: {text}" for text in foreseen.warnings]
    if standing and standing.said:
        said += [f"the last deployment: {one.text()}" for one in standing.said]
    return said


def called(change: Change) -> str:
    """Return what people call the resource of a change."""
    return f"{change.type.rpartition('/')[2]} {change.name}"


def _deletion(change: Change) -> Step:
    machine = change.type.lower() == "microsoft.compute/virtualmachines"
    return Step(
        f"{DELETE} {change.id.lower()}",
        f"delete {called(change)}{' and the disk of its operating system' if machine else ''}",
        effects.of_deletion(change),
        disruption="its host has to have left the cluster before (member-remove, node-remove)"
        if machine
        else "",
        seconds=60,
    )


def _deployment(title: str, changes: list[Change]) -> Step:
    created = [one for one in changes if one.kind == "create"]
    parts = []
    if created:
        kinds = collections.Counter(one.type.rpartition("/")[2] for one in created)
        counted = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
        parts.append(f"create {len(created)} resources ({counted})")
    if modified := [one for one in changes if one.kind == "modify"]:
        parts.append(f"change {_listed(modified)}")
    if unsure := [one for one in changes if one.kind == "unsupported"]:
        parts.append(f"deploy {_listed(unsure)}, of which Azure foresees nothing")
    seconds = max((_SECONDS.get(one.type.lower(), 30) for one in changes), default=30)
    costs = ", ".join(
        f"{number} {kind}"
        for kind, number in sorted(
            collections.Counter(
                one.type.rpartition("/")[2] for one in created if one.type.lower() in _PAID
            ).items()
        )
    )
    return Step(
        DEPLOY,
        f"deploy {title}: {', '.join(parts) or 'bring it to an end'}",
        frozenset({"costs"}) if costs else frozenset(),
        costs=costs,
        seconds=seconds,
    )


_PAID = frozenset(
    {
        "microsoft.compute/virtualmachines",
        "microsoft.compute/virtualmachinescalesets",
        "microsoft.compute/disks",
        "microsoft.network/virtualnetworkgateways",
        "microsoft.network/natgateways",
        "microsoft.network/publicipaddresses",
        "microsoft.network/privateendpoints",
        "microsoft.network/loadbalancers",
        "microsoft.storage/storageaccounts",
        "microsoft.keyvault/vaults",
    }
)


def _listed(changes: list[Change]) -> str:
    more = f" and {len(changes) - _NAMED} more" if len(changes) > _NAMED else ""
    return ", ".join(called(one) for one in changes[:_NAMED]) + more


def _change(entry: Mapping[str, t.Any]) -> Change:
    """Return a change as a state has it."""
    properties = tuple(
        Property(path, "modify", one.get("before"), one.get("after"))
        for path, one in (entry.get("properties") or {}).items()
    )
    return Change(
        str(entry["id"]),
        entry["change"],
        properties,
        str(entry.get("reason") or ""),
        bool(entry.get("potential")),
    )
