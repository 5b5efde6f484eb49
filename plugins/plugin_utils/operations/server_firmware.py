# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Firmware of servers that run: a node on one is drained first, and opened once its host is back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.cordon import closed_at
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import Context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.servers import nodes_on
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.workers import emptying_steps
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.compare import compared
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import Thing
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds import bare_metal_firmware
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import Step

UPDATE_SECONDS = 1800
"""Of a BIOS and a BMC with the reboot of a server with eight GPUs, an estimate."""


def steps(context: Context) -> list[Step]:
    """Return the steps of hosts of the inventory; what is done to a server itself stands with it in the plan.

    Raises:
        RemoteError: Ironic cannot be asked, or the expected servers have problems.
        OperationError: one is a control plane or an etcd member, the cluster cannot be asked, the inventory
            lacks one of its nodes, or a node holds pods that must not be lost.
    """
    things = things_of(context)
    due = [thing.name for thing in things if thing.steps]
    nodes = nodes_on(context, [thing.name for thing in things if thing.steps or _asked_at(thing)])
    if nodes is None:
        return []
    known = context.site.hosts
    found: list[Step] = []
    for name, emptying in emptying_steps(context, [known[one] for one in due if one in known], nodes).items():
        update = Step(
            "update-firmware",
            name,
            f"update the firmware of {name}",
            disruption="it restarts",
            seconds=UPDATE_SECONDS,
        )
        found += [*emptying, update, *([_opening(name)] if name in nodes else [])]
    return [*found, *(_opening(name) for name in _left_closed(things, nodes))]


def things_of(context: Context) -> Sequence[Thing]:
    """Return the servers that are asked for, as they are compared with their firmware.

    Raises:
        RemoteError: as ``steps``.
    """
    host = next(iter(context.site.hosts.values()))
    variables = {name: host.variables.get(name) for name in bare_metal_firmware.VARIABLES}
    variables["site"] = context.site
    wanted = bare_metal_firmware.declared(variables, context.arguments)
    return compared(bare_metal_firmware.opened(variables), wanted)


def _opening(name: str) -> Step:
    return Step("uncordon", name, f"open {name} once it is Ready")


def _left_closed(things: Sequence[Thing], nodes: Mapping[str, Object]) -> list[str]:
    """Return nodes that a run closed, updated, and did not come to open.

    Whoever closed a node after its update had another reason, so that it stays closed.
    """
    return [
        thing.name
        for thing in things
        if not thing.steps
        and not thing.found.fault
        and thing.name in nodes
        and "" < closed_at(nodes[thing.name]) <= _asked_at(thing)
    ]


def _asked_at(thing: Thing) -> str:
    return str((thing.found.state or {}).get("asked_at") or "")
