# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Waits until Cilium's agents and operator run everywhere as they are declared now.

The DaemonSet's own status says whether all is done, and no more; nodes are found by the pods' hash of the
DaemonSet's latest ControllerRevision, which is what its controller compares too. Nodes whose kubelet does
not report are not waited for: nobody can start anything there, and ``verify`` names them.
"""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import cordon, rollouts
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError

_APPS = "/apis/apps/v1/namespaces/kube-system"
AGENT, OPERATOR = f"{_APPS}/daemonsets/cilium", f"{_APPS}/deployments/cilium-operator"
REVISIONS, PODS, NODES = (
    f"{_APPS}/controllerrevisions",
    "/api/v1/namespaces/kube-system/pods",
    "/api/v1/nodes",
)
AGENTS = "k8s-app=cilium"
HASH = "controller-revision-hash"
POLL_S = 2.0
_SHOWN = 8


class Look(t.NamedTuple):
    """What runs at one moment.

    Args:
        waiting: nodes without an agent that is up and as declared, with what is known of the reason.
        nodes: how many nodes there are to wait for.
        silent: nodes that are not waited for, because their kubelets do not report.
        operator: what is wrong with the operator, empty when nothing is.
    """

    waiting: Mapping[str, str]
    nodes: int
    silent: tuple[str, ...]
    operator: str

    @property
    def done(self) -> bool:
        """Tell whether everything runs as declared."""
        return not self.waiting and not self.operator

    @property
    def up(self) -> tuple[int, bool]:
        """How far it has come: nodes that are done, and the operator."""
        return self.nodes - len(self.waiting), not self.operator


def wait(
    api: Api, patience: float, say: Callable[[str], None], pause: Callable[[float], None] = time.sleep
) -> Look:
    """Wait as long as it goes on.

    Args:
        api: the cluster.
        patience: seconds after which nothing has come up any more. A whole rollout may take longer: it goes
            through the nodes in parts (``cilium_max_unavailable``).
        say: told how far it is, whenever that changes.
        pause: how to wait.

    Returns:
        The last look, in which everything is done.

    Raises:
        ClusterError: it does not go on; names nodes and reasons.
    """
    best: tuple[int, bool] | None = None
    told = ""
    idle = 0.0
    while True:
        now = look(api)
        if now.done:
            return now
        text = _text(now)
        if text != told:
            say(f"waiting: {text}")
            told = text
        if best is None or now.up > best:
            best, idle = now.up, 0.0
        elif idle >= patience:
            raise ClusterError(
                f"Cilium does not run everywhere as declared, and for {patience:.0f} s nothing more came up: "
                f"{text}.",
                "See kubectl -n kube-system get pods -o wide -l app.kubernetes.io/part-of=cilium and the "
                "logs of those that are not ready; then run this again.",
            )
        pause(POLL_S)
        idle += POLL_S


def look(api: Api) -> Look:
    """Return what runs now; where all of it does, this costs three small requests."""
    agents, operator = api.find(AGENT), api.find(OPERATOR)
    # Before the nodes are read: a node that joins meanwhile is waited for by whoever lets it join.
    if agents is not None and operator is not None and all(map(rollouts.is_done, (agents, operator))):
        return Look({}, 0, (), "")
    nodes = {str(node["metadata"]["name"]): node for node in api.get(NODES)["items"]}
    silent = sorted(name for name, node in nodes.items() if _is_silent(node))
    there = [name for name in sorted(nodes) if name not in silent]
    able = sum(not cordon.is_cordoned(nodes[name]) for name in there)
    return Look(
        _waiting(api, agents, there), len(there), tuple(silent), _operator_problem(operator, max(able, 1))
    )


def _is_silent(node: Object) -> bool:
    """Tell whether the cluster has given a node's kubelet up; one that has just come has no condition."""
    return bool(cordon.ready_condition(node).get("status") == "Unknown")


def _waiting(api: Api, agents: Object | None, nodes: Sequence[str]) -> dict[str, str]:
    if agents is None:
        return dict.fromkeys(nodes, "the cluster has no DaemonSet cilium")
    if not rollouts.is_taken_up(agents):
        return dict.fromkeys(nodes, "the change was not taken up yet")
    if rollouts.is_done(agents):
        return {}
    newest = _newest(api, agents["metadata"].get("uid"))
    found: dict[str, str] = dict.fromkeys(nodes, "no agent yet")
    for pod in api.get(PODS, labelSelector=AGENTS)["items"]:
        node = pod["spec"].get("nodeName")
        if node in found:
            problem = _pod_problem(pod, newest)
            if problem is None:
                del found[node]
            else:
                found[node] = problem
    return found


def _newest(api: Api, owner: t.Any) -> str:
    revisions = [
        item
        for item in api.get(REVISIONS, labelSelector=AGENTS)["items"]
        if any(one.get("uid") == owner for one in item["metadata"].get("ownerReferences") or ())
    ]
    newest = max(revisions, key=lambda item: int(item["revision"]), default=None)
    return str((newest or {"metadata": {}})["metadata"].get("labels", {}).get(HASH, ""))


def _pod_problem(pod: Object, newest: str) -> str | None:
    metadata, status = pod["metadata"], pod.get("status", {})
    if metadata.get("deletionTimestamp"):
        return "its agent is being replaced"
    if newest and (metadata.get("labels") or {}).get(HASH) != newest:
        return "its agent is still the former one"
    conditions = status.get("conditions") or ()
    if any(one["type"] == "Ready" and one["status"] == "True" for one in conditions):
        return None
    for one in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        held = one.get("state", {}).get("waiting") or {}
        if held.get("reason") not in (None, "PodInitializing", "ContainerCreating"):
            return f"its agent is in {held['reason']}"
    return "its agent starts"


def _operator_problem(operator: Object | None, nodes: int) -> str:
    if operator is None:
        return "the cluster has no Deployment cilium-operator"
    if rollouts.is_done(operator):
        return ""
    wanted, status = operator["spec"].get("replicas", 1), operator.get("status", {})
    # Each is on a node of its own; before workers join there may be fewer nodes than are wanted.
    enough = min(wanted, nodes)
    available = status.get("availableReplicas", 0)
    if (
        rollouts.is_taken_up(operator)
        and status.get("updatedReplicas", 0) >= wanted >= status.get("replicas", 0)
        and available >= enough
    ):
        return ""
    return f"{available} of {enough} operators are up, {status.get('updatedReplicas', 0)} as declared"


def _text(now: Look) -> str:
    parts = []
    if now.waiting:
        named = [f"{name} ({why})" for name, why in list(now.waiting.items())[:_SHOWN]]
        more = len(now.waiting) - len(named)
        parts.append(
            f"agents of {len(now.waiting)} of {now.nodes} nodes are not up: {', '.join(named)}"
            + (f" and {more} more" if more else "")
        )
    return "; ".join([*parts, *filter(None, [now.operator])])
