# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The estate in Azure: what differs from the data, roles that are missing or end, quota, endpoints' names."""

from __future__ import annotations

import collections
import datetime
import ipaddress
import typing as t
from collections.abc import Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.findings import (
    NOTICE,
    PROBLEM,
    Evidence,
    Finding,
    duration,
    names,
    operation,
    together,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site

ENDING_DAYS, SOON_DAYS = 3, 14
"""A role that ends within three days is a problem; within two weeks it is worth knowing."""
_DAY = 86400
_ROLES = "microsoft.authorization/roleassignments"


def has_estate(site: Site) -> bool:
    """Tell whether a site declares an estate; what asks about it is loaded for these sites only."""
    return any(host.variables.get("azure_subscription") for host in list(site.hosts.values())[:1])


def estate(evidence: Evidence) -> Iterator[Finding]:
    """What differs from the data, roles that are missing or end, quota that pools would exceed."""
    yield from told(evidence.site, evidence.estate, evidence.now)


def told(site: Site, said: Mapping[str, t.Any], now: float) -> Iterator[Finding]:
    """Yield what is to be said of an estate.

    Args:
        site: it is of.
        said: what ``ask_estate`` returned.
        now: Unix time.
    """
    if not said:
        return
    if error := said.get("error"):
        yield Finding(
            NOTICE,
            f"the estate in Azure could not be asked about: {error}",
            "sign in as azure_management says",
        )
        return
    deploy, state = operation(site, "azure"), said["state"]
    if said["fault"] and not state.get("running"):
        yield Finding(
            PROBLEM, f"the estate {said['name']}: {said['fault']}", "correct it, then ironspan doctor"
        )
    if not state:
        return
    if state.get("running"):
        yield Finding(
            NOTICE, f"the estate {said['name']} is being deployed", "wait, or follow it: ironspan azure"
        )
        return
    if not state["exists"]:
        yield Finding(PROBLEM, f"the estate {said['name']} was never deployed", deploy)
        return
    if state["state"] != "succeeded":
        yield Finding(PROBLEM, f"the last deployment of {said['name']} ended as {state['state']}", deploy)
    yield from _drift(said["name"], state["changes"], deploy)
    yield from _ending(said.get("ends") or (), now)
    for text in said.get("quota") or ():
        yield Finding(NOTICE, f"pools cannot grow to what they may have, {text}", "ask Azure for more quota")


def _drift(name: str, changes: list[Mapping[str, t.Any]], deploy: str) -> Iterator[Finding]:
    """Yield what is missing, is otherwise, or has left the data."""
    gone: dict[str, list[str]] = collections.defaultdict(list)
    for one in changes:
        kind, called = _kind_and_name(str(one["id"]))
        if one["change"] == "create" and kind == _ROLES:
            gone["lacks role assignments"].append(str(one["id"]).rpartition("/providers/Microsoft.Auth")[0])
        elif one["change"] in _SAID:
            gone[_SAID[one["change"]]].append(called)
    for what, listed in gone.items():
        short = sorted({one.rpartition("/")[2] for one in listed})
        on = " on" if what.startswith("lacks role") else ":"
        yield Finding(PROBLEM, f"the estate {name} {what}{on} {names(short)}", deploy)


_SAID = {
    "create": "lacks what the data have",
    "modify": "differs from the data",
    "delete": "has what the data have no more",
    "detach": "has what the data have no more",
}


def _kind_and_name(identifier: str) -> tuple[str, str]:
    _, _, rest = identifier.lower().rpartition("/providers/")
    steps = rest.split("/")
    return "/".join([steps[0], *steps[1::2]]), identifier.rpartition("/")[2]


def _ending(ends: t.Iterable[Mapping[str, str]], now: float) -> Iterator[Finding]:
    """Yield the roles that end soon, the soonest first."""
    soon: list[tuple[float, Mapping[str, str]]] = []
    for one in ends:
        try:
            moment = datetime.datetime.fromisoformat(one["ends"])
        except ValueError:
            continue
        left = moment.replace(tzinfo=moment.tzinfo or datetime.UTC).timestamp() - now
        if 0 < left < SOON_DAYS * _DAY:
            soon.append((left, one))
    for left, one in sorted(soon, key=lambda each: (each[0], each[1]["scope"], each[1]["who"])):
        on = one["scope"].rpartition("/")[2]
        yield Finding(
            PROBLEM if left < ENDING_DAYS * _DAY else NOTICE,
            f"the role {one['role']} of {one['who']} on {on} ends in {duration(left)}",
            "extend it in Privileged Identity Management, or let it end",
        )


def endpoints(evidence: Evidence) -> Iterator[Finding]:
    """Names of private endpoints that lead hosts in Azure out of the network, or nowhere."""
    public, unknown = [], []
    for host, answer in evidence.answers():
        for name, found in sorted((answer["network"].get("resolved") or {}).items()):
            if "error" in found:
                unknown.append((host, f"{name} does not resolve: {found['error']}"))
            elif any(not ipaddress.ip_address(one).is_private for one in found["addresses"]):
                listed = ", ".join(found["addresses"])
                public.append((host, f"{name} has a private endpoint, and resolves publicly, to {listed}"))
    remedy = "link its private DNS zone to their network, and let their name servers ask 168.63.129.16"
    yield from together(PROBLEM, public, lambda _: remedy)
    yield from together(PROBLEM, unknown, lambda _: remedy)
