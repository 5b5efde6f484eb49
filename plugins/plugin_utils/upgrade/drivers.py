# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which nodes of a wave go back to the GPU driver of before, because their GPUs failed with the new one.

An annotation on the Node says that its driver is being changed, from which and to which, and whether it is on
its way back, so that a run that was killed is finished by the next one. It is the controller's; what the node
says of itself (its driver, its preflight) decides about that node alone.
"""

from __future__ import annotations

import dataclasses
import json
import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.idle import PREFLIGHT as TAINT
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.cordon import (
    DRIVER_CHANGE,
    boot_of,
    cordoned_here,
    is_cordoned,
    node_path,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Host

PREFLIGHT = "GPUPreflight"
"""The Node's condition that the agent of GPU hosts writes."""
_VERDICT, _SEEN = "ironspan.io/gpu-preflight", "ironspan.io/gpu-seen"


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """A driver that is being changed.

    Args:
        before: version that ran.
        to: version that was declared.
        back: it failed, and the node is on its way back.
    """

    before: str
    to: str
    back: bool = False

    def text(self) -> str:
        """Return it as the annotation's value."""
        return json.dumps(dataclasses.asdict(self))


def declared(host: Host) -> str:
    """Return the driver's version that a host shall have, an empty text where it is somebody else's."""
    return str(host.variables.get("nvidia_driver_version") or "") if host.in_group("gpu") else ""


def change_of(node: Object) -> Change | None:
    """Return which driver of a node is being changed, None when none is or nobody can read it."""
    said = _annotation(node, DRIVER_CHANGE)
    before, to = said.get("before"), said.get("to")
    if not (isinstance(before, str) and isinstance(to, str) and before and to):
        return None
    return Change(before, to, said.get("back") is True)


def noted(node: Object, wanted: str) -> Change | None:
    """Return what the annotation shall say before the driver of a drained node changes; None: nothing.

    Args:
        node: as it is now.
        wanted: the version that the inventory declares.
    """
    change = change_of(node)
    if change is not None and change.to == wanted and change.back:
        return change
    runs = driver_of(node)
    if wanted and runs and runs != wanted:
        return Change(runs, wanted)
    if change is None or change.to != wanted or verdict_of(node) is True:
        return None
    # An earlier run changed it, and its GPUs have not passed yet.
    return change


def waits(node: Object | None) -> bool:
    """Tell whether a run was cut off while it changed a node's driver, or took it back."""
    return node is not None and is_cordoned(node) and cordoned_here(node) and change_of(node) is not None


def driver_of(node: Object) -> str:
    """Return the driver that a node's GPUs run with in this boot, an empty text when nobody says."""
    return _said(_annotation(node, _SEEN).get("driver")) if _is_now(node, _SEEN) else ""


def verdict_of(node: Object) -> bool | None:
    """Return whether a node's GPUs passed the preflight of this boot and driver, None without one."""
    said = _annotation(node, _VERDICT)
    if not _is_now(node, _VERDICT) or not driver_of(node) or _said(said.get("driver")) != driver_of(node):
        return None
    status = condition_of(node).get("status")
    if status == "False" or said.get("passed") is False:
        return False
    return True if status == "True" and said.get("passed") is True else None


def is_outdated(node: Object) -> bool:
    """Tell whether the last verdict of a node's preflight is of another boot."""
    return bool(_annotation(node, _VERDICT)) and not _is_now(node, _VERDICT)


def is_new(node: Object) -> bool:
    """Tell whether a node has the taint of those whose GPUs have to pass a preflight before pods come."""
    return any(taint["key"] == TAINT for taint in node.get("spec", {}).get("taints") or ())


def condition_of(node: Object) -> Object:
    """Return the condition of a node's preflight, an empty one when it has none."""
    conditions = node["status"].get("conditions", ())
    return next((dict(each) for each in conditions if each["type"] == PREFLIGHT), {})


def note(api: Api, hosts: Sequence[Host]) -> list[str]:
    """Write down which drivers are about to change, and return the nodes that are on their way back.

    Args:
        api: the API.
        hosts: of the wave, drained.
    """
    back = []
    for host in hosts:
        node = api.find(node_path(host.name)) if host.in_group("gpu") else None
        if node is None:
            continue
        change = noted(node, declared(host))
        if change != change_of(node):
            _write(api, host.name, change)
        if change is not None and change.back:
            back.append(host.name)
    return back


def turn_back(api: Api, names: Sequence[str]) -> None:
    """Write down that these nodes are on their way back."""
    for name in names:
        change = change_of(api.get(node_path(name)))
        if change is not None:
            _write(api, name, dataclasses.replace(change, back=True))


def failed(api: Api, hosts: Sequence[Host], boots: Mapping[str, str]) -> list[str]:
    """Return the hosts whose GPUs failed their preflight with a driver that they have got in this wave.

    Args:
        api: the API.
        hosts: of the wave.
        boots: boot IDs as the hosts have them now; of a node that reports another one, nothing is known yet.
    """
    nodes = {host.name: api.find(node_path(host.name)) for host in hosts if declared(host)}
    return [
        host.name
        for host in hosts
        if (node := nodes.get(host.name)) and _has_failed(node, declared(host), boots.get(host.name, ""))
    ]


def _has_failed(node: Object, wanted: str, boot: str) -> bool:
    change = change_of(node)
    return (
        change is not None
        and change.to == wanted == driver_of(node)
        and not change.back
        and boot in ("", boot_of(node))
        and verdict_of(node) is False
    )


def _write(api: Api, name: str, change: Change | None) -> None:
    text = None if change is None else change.text()
    api.merge(node_path(name), {"metadata": {"annotations": {DRIVER_CHANGE: text}}})


def _is_now(node: Object, name: str) -> bool:
    return bool(boot_of(node)) and _annotation(node, name).get("boot") == boot_of(node)


def _annotation(node: Object, name: str) -> Mapping[str, t.Any]:
    try:
        found = json.loads((node["metadata"].get("annotations") or {}).get(name) or "{}")
    except (ValueError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _said(value: t.Any) -> str:
    return value if isinstance(value, str) and value.isprintable() and len(value) <= 64 else ""
