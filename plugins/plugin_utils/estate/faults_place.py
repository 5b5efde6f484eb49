# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Faults of where the estate is, how it is deployed, and of names and tags."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.catalogue import regions
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.faults import Fault, Given, Judge
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.named import NAMED, logical_names
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.values import (
    REGION,
    SPACE,
    SUBSCRIPTION,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.formats import fault_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest

_ZONES = "azure_zones"
_AZURES_TAGS = ("azure", "microsoft", "windows")
"""Azure, Tags, Create Or Update: beginnings of names that are reserved."""
_MOST_PRINCIPALS, _MOST_ACTIONS, _MOST_TAGS = 5, 200, 45
"""Azure, Deployment stacks: deny settings. Of fifty tags five stay for ironspan's own."""


def missing(given: Given) -> Iterator[Fault]:
    """What nothing can be made without."""
    needed = {
        REGION: "its short name, for example westeurope",
        "azure_tenant": "the tenant's ID, as `az account show --query tenantId` says it",
        SPACE: "a private network that nobody else has, for example 10.20.0.0/20",
    }
    for name, example in needed.items():
        if not given.values[name]:
            yield (name,), "is not written", f"write {example}"
    machines = given.values["azure_machines"] or given.values["azure_pools"]
    image = given.values["azure_image"]
    wanted = machines or str(image["version"]).lower() == "latest"
    if wanted and not image["id"] and str(image["version"] or "").lower() in ("", "latest"):
        what = "is latest, another one each time" if image["version"] else "is not written"
        yield (
            ("azure_image", "version"),
            what,
            "write a version, as `az vm image list --all` shows them, or an id",
        )
    if machines and not given.values["azure_authorized_keys"]:
        yield ("azure_authorized_keys",), "is empty, and nobody could log in", "write public keys of SSH"
    tenant, subscription = given.values["azure_tenant"], given.values[SUBSCRIPTION]
    if tenant and tenant.lower() == subscription.lower():
        message = "is the identifier of the subscription"
        yield ("azure_tenant",), message, "write the tenant's, as `az account show --query tenantId` says it"


def region(given: Given) -> Iterator[Fault]:
    """A region that there is, with the zones that it has."""
    name, zones = given.values[REGION], given.values[_ZONES] or []
    known = regions()
    if name and name not in known:
        near = nearest(name, known)
        yield (
            (REGION,),
            f"{name!r} is no region that is known",
            f"write {near}" if near else "see estate/regions.yml",
        )
    if zones and known.get(name) is False:
        yield (REGION,), f"{name} has no availability zones", f"write {_ZONES}: [] too, or another region"


def deployment(given: Given) -> Iterator[Fault]:
    """What only a stack can do, and how much of it."""
    deny = given.values["azure_deny"]
    plain = given.values["azure_deployment"] == "plain"
    if plain and deny["mode"] != "none":
        yield (
            ("azure_deny", "mode"),
            "a plain deployment denies nothing",
            "write none, or azure_deployment: stack",
        )
    if plain and given.values["azure_unmanaged"] == "delete":
        yield (
            ("azure_unmanaged",),
            "a plain deployment deletes nothing",
            "write detach, or azure_deployment: stack",
        )
    for key in ("excluded_principals", "excluded_actions"):
        if deny[key] and deny["mode"] == "none" and not plain:
            yield (
                ("azure_deny", key),
                "is written, and mode is none",
                "write mode: denyDelete, or take it out",
            )
    for key, most in (("excluded_principals", _MOST_PRINCIPALS), ("excluded_actions", _MOST_ACTIONS)):
        if len(deny[key]) > most:
            yield ("azure_deny", key), f"has {len(deny[key])}, and Azure takes {most}", "leave some out"


def tags(given: Given) -> Iterator[Fault]:
    """Tags of ironspan are its own."""
    written = given.values["azure_tags"]
    spelt: dict[str, str] = {}
    for name, value in written.items():
        if str(name).lower().startswith("ironspan-"):
            yield ("azure_tags", name), "is a tag of ironspan's own", "write another name"
        elif start := next(filter(str(name).lower().startswith, _AZURES_TAGS), ""):
            what = f"begins with {start}, as tags of Azure's own do, which it refuses"
            yield ("azure_tags", name), what, "write another name"
        if not isinstance(value, str):
            yield ("azure_tags", name), f"must be text, is {value!r}", "write one text, in quotes"
        before = spelt.setdefault(str(name).lower(), name)
        if before != name:
            message = f"is the tag {before} too: Azure does not tell capitals apart"
            yield ("azure_tags", name), message, "write one of them"
    if len(written) > _MOST_TAGS:
        yield (
            ("azure_tags",),
            f"has {len(written)}, and Azure takes {_MOST_TAGS} beside ironspan's",
            "leave some out",
        )


def names(given: Given) -> Iterator[Fault]:
    """Names that Azure takes, each of one thing."""
    if given.estate is None:
        return
    spelt: dict[str, str] = {}
    for part, name in given.estate.groups.items():
        before = spelt.setdefault(name.lower(), name)
        if before != name:
            message = f"{name} is the group {before} too: Azure does not tell capitals apart"
            yield ("azure_resource_groups", part), message, f"write {before}"
    known = logical_names(given.estate)
    for what, name in given.values["azure_names"].items():
        if name in ("", None):
            yield ("azure_names", what), "has no name", "write one, or take it out"
        elif not isinstance(name, str):
            yield ("azure_names", what), f"must be text, is {name!r}", "write one text, in quotes"
        if what not in known:
            near = nearest(str(what), known)
            yield (
                ("azure_names", what),
                "is nothing that has a name",
                f"write {near}" if near else "see docs/azure.md",
            )
    said: dict[tuple[str, str], str] = {}
    for what, kind in known.items():
        name = given.estate.name_of(what)
        own = what in given.values["azure_names"]
        path = ("azure_names", what) if own else ("azure_prefix",)
        if not isinstance(name, str):
            continue
        if fault := fault_of(name, NAMED[kind]):
            yield path, f"{name!r} {fault[0]} (it names {what})", fault[1]
            if not own:
                return  # all that the rule makes begin like this one
        elif (other := said.setdefault((kind, name.lower()), what)) != what:
            yield path, f"{name} is the name of {other} too", "write another one for one of them"


JUDGES: tuple[Judge, ...] = (missing, region, deployment, tags, names)
