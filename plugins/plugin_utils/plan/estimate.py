# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How long a change takes, roughly: so that a reviewer knows minutes from hours."""

from __future__ import annotations

import math
import typing as t
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import AT_ONCE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers

SOURCE = (
    "a rough table of seconds by kind of resource, artefacts by size at 20 MB/s; not measured on this site"
)
SECONDS: dict[str, float] = {
    "package": 15,
    "package_set": 120,
    "module_build": 240,
    "container_image": 4,
    "kubeadm": 60,
    "systemd_unit": 3,
    "key_and_csr": 0.2,
    "certificate": 0.3,
    "kernel_module": 0.2,
    "user": 0.2,
    "swap": 0.5,
}
"""Seconds that a change of a kind takes; every other kind takes OTHERS."""
OTHERS = 0.05
BYTES_A_SECOND = 20_000_000
AROUND_S = 20
"""Connecting, comparing, and the verification at the end."""


def seconds_of(resource: Mapping[str, t.Any]) -> float:
    """Return about how long it takes to make or change a resource of a document."""
    kind = str(resource.get("kind"))
    if kind == "artifact":
        return 0.2 + float(resource.get("size") or 0) / BYTES_A_SECOND
    return SECONDS.get(kind, OTHERS)


def by_layer(resources: Mapping[str, Mapping[str, t.Any]], names: t.Iterable[str]) -> dict[str, float]:
    """Return the seconds that changes take, by layer.

    Args:
        resources: those of the document, by id.
        names: ids of those that change.
    """
    result: dict[str, float] = {}
    for name in names:
        layer = name.split("/", 1)[0]
        result[layer] = result.get(layer, 0) + seconds_of(resources.get(name, {}))
    return result


def of_things(things: t.Sequence[Mapping[str, t.Any]]) -> int:
    """Return the seconds that remote things take: those of a kind side by side, kinds one after the other.

    Args:
        things: as the plan has them.
    """
    longest: dict[str, int] = {}
    counts: dict[str, int] = {}
    for thing in things:
        if thing["steps"]:
            kind = str(thing["kind"])
            took = sum(step["seconds"] for step in thing["steps"])
            longest[kind] = max(longest.get(kind, 0), took)
            counts[kind] = counts.get(kind, 0) + 1
    return sum(longest[kind] * math.ceil(count / AT_ONCE) for kind, count in counts.items())


def of_site(hosts: t.Sequence[Mapping[str, float]], forks: int) -> int:
    """Return the seconds of a whole run: hosts side by side, members and control planes in turn.

    Args:
        hosts: seconds by layer of every host that changes.
        forks: how many hosts are worked on at the same time.
    """
    if not hosts:
        return AROUND_S
    in_turn = all_layers().one_by_one
    together = max(sum(s for layer, s in host.items() if layer not in in_turn) for host in hosts)
    waves = math.ceil(len(hosts) / max(1, forks))
    alone = sum(host.get(layer, 0) for host in hosts for layer in in_turn)
    return math.ceil(AROUND_S + together * waves + alone)
