# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The nodes of the inventory: in the cluster, Ready, at their version and address."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.expectations import (
    Expected,
    ExpectedNode,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.report import Check
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.cordon import (
    boot_of,
    is_ready,
    node_path,
    ready_condition,
)

_POLL_SECONDS = 0.5
_ANY_BOOT: t.Final[t.Mapping[str, str]] = {}


class NodesCheck(t.NamedTuple):
    """The verdict, and the names of the expected nodes that are Ready."""

    check: Check
    ready: frozenset[str]


def check_nodes(
    api: Api, expected: Expected, seconds: float, progress: t.Callable[[str], None] = lambda text: None
) -> NodesCheck:
    """Wait for nodes that are not Ready yet; what else is wrong with a node does not pass by waiting.

    Args:
        api: the cluster.
        expected: what the inventory says.
        seconds: how long to wait.
        progress: told whom it waits for, whenever that changes.
    """
    begin = time.monotonic()
    told: list[str] = []
    while True:
        found = {item["metadata"]["name"]: item for item in api.get("/api/v1/nodes")["items"]}
        waiting = [
            node.name for node in expected.nodes if node.name in found and not is_ready(found[node.name])
        ]
        if not waiting or time.monotonic() > begin + seconds:
            break
        if waiting != told:
            progress(f"waiting for {', '.join(waiting)} to be Ready")
            told = waiting
        time.sleep(_POLL_SECONDS)
    problems = [problem for node in expected.nodes if (problem := node_problem(node, found.get(node.name)))]
    strangers = sorted(found.keys() - {node.name for node in expected.nodes})
    if strangers:
        problems.append(f"the cluster has nodes that the inventory does not: {', '.join(strangers)}")
    ready = frozenset(node.name for node in expected.nodes if is_ready(found.get(node.name, {})))
    evidence = [
        {
            "node": name,
            "ready": "yes" if is_ready(item) else "NO",
            "kubelet": item["status"]["nodeInfo"]["kubeletVersion"],
            "runtime": item["status"]["nodeInfo"]["containerRuntimeVersion"],
            "kernel": item["status"]["nodeInfo"]["kernelVersion"],
            "address": _address(item),
        }
        for name, item in sorted(found.items())
    ]
    summary = f"{len(ready)} of {len(expected.nodes)} Ready"
    elapsed = time.monotonic() - begin
    return NodesCheck(Check("nodes", not problems, summary, problems, evidence, elapsed), ready)


def check_named(
    api: Api,
    nodes: t.Sequence[ExpectedNode],
    seconds: float,
    progress: t.Callable[[str], None] = lambda text: None,
    boots: t.Mapping[str, str] = _ANY_BOOT,
) -> list[str]:
    """Wait for a few nodes to be as they should be, asking for each and not for all of the cluster.

    Args:
        api: the cluster.
        nodes: what the inventory says of them.
        seconds: how long to wait for those that are not Ready yet.
        progress: told whom it waits for, whenever that changes.
        boots: boot IDs that kubelets have to report from; those of hosts that are not in it may be any.

    Returns:
        What is wrong in the end.
    """
    end = time.monotonic() + seconds
    told: list[str] = []
    while True:
        found = {node.name: api.find(node_path(node.name)) for node in nodes}
        waiting = [
            node.name
            for node in nodes
            if not is_ready(found[node.name] or {}) or _is_of_another_boot(found[node.name] or {}, boots)
        ]
        if not waiting or time.monotonic() > end:
            silent = [
                f"{node.name} was restarted, and its kubelet has not reported since"
                for node in nodes
                if _is_of_another_boot(found[node.name] or {}, boots)
            ]
            return [*silent, *filter(None, (node_problem(node, found[node.name]) for node in nodes))]
        if waiting != told:
            progress(f"waiting for {', '.join(waiting)} to be Ready")
            told = waiting
        time.sleep(_POLL_SECONDS)


def node_problem(expected: ExpectedNode, item: Object | None) -> str:
    """Say what is wrong with one node, "" when nothing is."""
    if item is None:
        return f"{expected.name} is not in the cluster"
    if not is_ready(item):
        reason = ready_condition(item).get("message") or "its kubelet has not reported"
        return f"{expected.name} is not Ready: {reason}"
    version = item["status"]["nodeInfo"]["kubeletVersion"]
    if version != f"v{expected.version}":
        return f"{expected.name} runs kubelet {version}, wanted v{expected.version}"
    if _address(item) != expected.address:
        return f"{expected.name} has the address {_address(item)}, wanted {expected.address}"
    return ""


def _is_of_another_boot(item: Object, boots: t.Mapping[str, str]) -> bool:
    name = item.get("metadata", {}).get("name")
    return name in boots and boot_of(item) != boots[name]


def _address(item: Object) -> str:
    addresses = item.get("status", {}).get("addresses", ())
    return next((str(a["address"]) for a in addresses if a["type"] == "InternalIP"), "")
