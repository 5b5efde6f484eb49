# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A running lab gets more racks' hosts, or loses some.

The state file says the new size before anything is made or removed. What a smaller lab no longer has is found
from what was recorded for it, so whatever a killed run left, the next `up` takes away.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from ironspan.lab import host, keys, mounts, processes, removal
from ironspan.lab.layout import LabHost
from ironspan.lab.machine import Machine
from ironspan.lab.state import State

#: Where a host that was a node of the cluster has what the kubelet logs in with.
_NODE = "etc/kubernetes/kubelet.conf"
_RACK = re.compile(rf"{host.PROCESS}(rack-([0-9]+))")


def resize(current: State, rack: int) -> None:
    """Write down another number of rack hosts; nothing is made or removed yet.

    Raises:
        LabError: there cannot be so many.
    """
    current.layout = replace(current.layout, rack=rack)
    current.save()


def surplus(current: State) -> list[LabHost]:
    """Return the rack hosts that were made, in whole or in part, and that the layout no longer has."""
    matches = [_RACK.fullmatch(one.name) for one in current.resources if one.kind == "process"]
    numbers = {int(match[2]) for match in matches if match}
    gone = {number for number in numbers if number > current.layout.rack}
    if not gone:
        return []
    larger = replace(current.layout, rack=max(gone))
    return [larger.host(f"rack-{number}") for number in sorted(gone)]


def remove_surplus(machine: Machine, current: State, progress: Callable[[str, str, str], None]) -> None:
    """Take away the hosts that the layout no longer has, with all they hold.

    Raises:
        LabError: something of a host cannot be removed; another `up` tries again.
    """
    for one in surplus(current):
        was_node = (host.folder(current.folder, one) / "upper" / _NODE).exists()
        progress(one.name, "start", "power off, and everything of it removed")
        remove(machine, current, one, again="lab up")
        progress(one.name, "done", _farewell(one) if was_node else "removed")


def remove(machine: Machine, current: State, one: LabHost, again: str) -> None:
    """Take a host away with all it holds.

    Args:
        machine: What the machine has.
        current: The lab.
        one: The host.
        again: The command that tries again what could not be removed.

    Raises:
        LabError: something of it cannot be removed.
    """
    host.stop(current.folder, one, machine)
    resources = host.resources(machine, current.folder, one)
    removal.remove_each(current.folder, resources, lambda _: None, again=again)
    mounts.remove_tree(host.folder(current.folder, one))
    keys.forget(current.folder, one.name)
    processes.forget(current.folder, host.process_name(one))
    # Last: until here it is found again.
    current.forget(resources)


def _farewell(one: LabHost) -> str:
    return (
        "removed; it was a node of the cluster, which has not been told: the Node becomes NotReady within a "
        f"minute, its pods start elsewhere five minutes later. Delete it: kubectl delete node {one.name}. "
        f"Before taking one away: ironspan apply node_remove -e ironspan_hosts={one.name} --allow-destructive"
    )
