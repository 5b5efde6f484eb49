# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Faults of where the estate is, how it is deployed, and of names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.catalogue import regions
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.faults import Fault, Given, Judge
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.named import NAMED, logical_names
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.values import REGION, SPACE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.formats import fault_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest

_ZONES = "azure_zones"
_MOST_PRINCIPALS, _MOST_ACTIONS, _MOST_TAGS = 5, 200, 45
"""Azure, Deployment stacks: deny settings. Of fifty tags five stay for ironspan's own."""
_REFUSED_USERS = frozenset(
    # Azure, Virtual machines FAQ: user names that are refused.
    re.findall(
        r"\S+",
        "admin administrator user user1 test user2 test1 user3 admin1 1 123 a actuser adm admin2 aspnet "
        "backup console david guest john owner root server sql support support_388945a0 sys test2 test3 "
        "user4 user5 ",
    )
)
_KEYS = ("ssh-ed25519 ", "ssh-rsa ")


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
    wanted = machines or image["version"] == "latest"
    if wanted and not image["id"] and image["version"] in (None, "", "latest"):
        what = "is latest, another one each time" if image["version"] else "is not written"
        yield (
            ("azure_image", "version"),
            what,
            "write a version, as `az vm image list --all` shows them, or an id",
        )
    if machines and not given.values["azure_authorized_keys"]:
        yield ("azure_authorized_keys",), "is empty, and nobody could log in", "write public keys of SSH"


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
    for key, most in (("excluded_principals", _MOST_PRINCIPALS), ("excluded_actions", _MOST_ACTIONS)):
        if len(deny[key]) > most:
            yield ("azure_deny", key), f"has {len(deny[key])}, and Azure takes {most}", "leave some out"


def tags(given: Given) -> Iterator[Fault]:
    """Tags of ironspan are its own."""
    written = given.values["azure_tags"]
    for name, value in written.items():
        if str(name).lower().startswith("ironspan-"):
            yield ("azure_tags", name), "is a tag of ironspan's own", "write another name"
        if isinstance(value, (list, dict)):
            yield ("azure_tags", name), f"must be text, is {value!r}", "write one text, in quotes"
    if len(written) > _MOST_TAGS:
        yield (
            ("azure_tags",),
            f"has {len(written)}, and Azure takes {_MOST_TAGS} beside ironspan's",
            "leave some out",
        )


def login(given: Given) -> Iterator[Fault]:
    """An account that Azure makes, with public keys, and the file of the machines' own."""
    user, known_hosts = given.values["azure_user"], given.values["azure_known_hosts"]
    if known_hosts and Path(known_hosts).exists() and not Path(known_hosts).is_file():
        yield ("azure_known_hosts",), f"{known_hosts} is no file", "write the path of a file"
    if user in _REFUSED_USERS:
        yield (
            ("azure_user",),
            f"{user} is an account that Azure refuses",
            "write another one, such as ironspan",
        )
    for index, key in enumerate(given.values["azure_authorized_keys"]):
        if "PRIVATE KEY" in key:
            yield (
                ("azure_authorized_keys", index),
                "is a private key",
                "write the public one, and make a new pair",
            )
        elif not key.startswith(_KEYS):
            yield (
                ("azure_authorized_keys", index),
                "is no key that Azure takes",
                "write ssh-ed25519 AAAA... or ssh-rsa AAAA...",
            )


def names(given: Given) -> Iterator[Fault]:
    """Names that Azure takes, each of one thing."""
    if given.estate is None:
        return
    known = logical_names(given.estate)
    for what in given.values["azure_names"]:
        if what not in known:
            near = nearest(what, known)
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
        if fault := fault_of(name, NAMED[kind]):
            yield path, f"{name!r} {fault[0]} (it names {what})", fault[1]
            if not own:
                return  # all that the rule makes begin like this one
        elif (other := said.setdefault((kind, name.lower()), what)) != what:
            yield path, f"{name} is the name of {other} too", "write another one for one of them"


JUDGES: tuple[Judge, ...] = (missing, region, deployment, tags, login, names)
