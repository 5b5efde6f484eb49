# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Drains nodes: cordons them, evicts their pods within disruption budgets, waits until they are gone.

Pods go through the Eviction API of policy/v1, which keeps every PodDisruptionBudget; what it refuses is asked
again until the deadline. Nothing is evicted from a node that holds a pod which must not go, so a drain that
cannot finish is not begun. All of it may be repeated after a kill: what is there is what is left to do.
"""

from __future__ import annotations

import concurrent.futures
import time
import typing as t
from collections.abc import Callable, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import dead_node
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.cordon import cordon, node_path
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import (
    ApiError,
    ClusterError,
    UnreachableError,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.pods import (
    Fate,
    budget_text,
    budgets_of,
    controller_of,
    disk_volumes,
    fate_of,
    name_of,
)

_PARALLEL = 16
_POLL_SECONDS = (0.3, 0.5, 1.0)
_AGAIN_SECONDS = 2.0
"""Pause before an eviction that a budget refused is asked for again."""
_LOOK_SECONDS = 5.0
"""How often it is asked whether a node that is being drained is still there."""
_SHOWN = 8

REFUSE, DELETE, SKIP = "refuse", "delete", "skip"
Say = Callable[[str], None]


class Policy(t.NamedTuple):
    """What a drain may do.

    Args:
        seconds: how long the pods of a node have to be gone.
        empty_dir_data: ``refuse`` or ``delete`` data that pods keep in emptyDir volumes on disk.
        force: pods that no controller would make again may go too.
        unreachable: what to do with a node whose kubelet is out of reach: ``refuse``, ``skip``, or ``delete``
            its pods from the API, which needs consent (see ``dead_node``).
        watch_seconds: how long the lease of such a node is watched.
    """

    seconds: float = 600
    empty_dir_data: str = REFUSE
    force: bool = False
    unreachable: str = REFUSE
    watch_seconds: float = dead_node.WATCH_SECONDS


class Outcome(t.NamedTuple):
    """What became of one node.

    Args:
        node: its name.
        state: ``drained``, ``stuck``, ``unreachable`` (skipped), or ``absent``: the cluster has no such node.
        evicted: the pods that went, NAMESPACE/NAME.
        reasons: why it is stuck or what shows that it is unreachable, one clause each.
        cordoned: whether it was closed by this drain.
    """

    node: str
    state: str
    evicted: Sequence[str] = ()
    reasons: Sequence[str] = ()
    cordoned: bool = False


def drain(api: Api, names: Sequence[str], policy: Policy, progress: Say = lambda text: None) -> list[Outcome]:
    """Drain nodes, all at the same time.

    Args:
        api: the cluster.
        names: names of the nodes.
        policy: what may be done.
        progress: told what each node waits for, whenever that changes.

    Returns:
        One outcome a node, in the order given. A node that cannot be emptied does not keep others from it.
    """
    with concurrent.futures.ThreadPoolExecutor(_PARALLEL) as pool:
        return list(pool.map(lambda name: _Drain(api, name, policy, progress).run(), names))


def preview(api: Api, name: str, policy: Policy) -> Outcome:
    """Say what a drain would do, and change nothing.

    Returns:
        ``evicted`` has the pods that would go; ``reasons`` why it would not begin.
    """
    node = api.find(node_path(name))
    if node is None:
        return Outcome(name, "absent")
    pods = pods_of(api, name)
    if dead_node.is_silent(node):
        reason = f"its kubelet has not been heard of since {dead_node.silent_since(node)}"
        return Outcome(name, "unreachable", _going(pods), [reason])
    reasons = refusals(pods, policy)
    return Outcome(name, "stuck" if reasons else "drained", _going(pods), reasons)


def pods_of(api: Api, name: str) -> list[Object]:
    """Return all pods of a node."""
    return list(api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={name}")["items"])


def refusals(pods: Sequence[Object], policy: Policy) -> list[str]:
    """Return why a node must not be emptied: pods that would be lost, or their data."""
    found = []
    for pod in pods:
        fate = fate_of(pod)
        if fate is Fate.ORPHAN and not policy.force:
            found.append(
                f"pod {name_of(pod)} has no controller that would start it again; "
                "delete it, or force the drain"
            )
        if fate is Fate.DATA and policy.empty_dir_data != DELETE:
            volumes = ", ".join(disk_volumes(pod))
            owner = controller_of(pod)
            found.append(
                f"pod {name_of(pod)} of {owner.get('kind')} {owner.get('name')} keeps data in emptyDir "
                f"{volumes}; set site_drain_empty_dir_data to delete to lose it"
            )
    return found


def _going(pods: Sequence[Object]) -> list[str]:
    return [name_of(pod) for pod in pods if fate_of(pod) is not Fate.STAYS]


class _Drain:
    """The drain of one node."""

    def __init__(self, api: Api, name: str, policy: Policy, progress: Say) -> None:
        self._api = api
        self._name = name
        self._policy = policy
        self._say = progress
        self._end = time.monotonic() + policy.seconds
        self._asked: dict[str, float] = {}
        """When the eviction of a pod was accepted, by uid."""
        self._refused: dict[str, tuple[float, str]] = {}
        """When the eviction of a pod was last refused, and how, by uid."""
        self._seen: dict[str, str] = {}
        """Pods that went or shall go, by uid."""
        self._told = ""
        self._cordoned = False
        self._next_look = time.monotonic() + _LOOK_SECONDS

    def run(self) -> Outcome:
        """Empty it; an error becomes an outcome, so that other nodes go on."""
        try:
            node = self._api.find(node_path(self._name))
            if node is None:
                return Outcome(self._name, "absent")
            if dead_node.is_silent(node):
                outcome = self._unreachable(node)
                if outcome:
                    return outcome
            reasons = refusals(pods_of(self._api, self._name), self._policy)
            if reasons:
                return Outcome(self._name, "stuck", (), reasons)
            self._cordoned = cordon(self._api, self._name)
            return self._empty()
        except ClusterError as error:
            return self._outcome("stuck", [str(error)])

    def _unreachable(self, node: Object) -> Outcome | None:
        """Deal with a node that the cluster lost; None when its kubelet answers all the same."""
        since = f"its kubelet has not been heard of since {dead_node.silent_since(node)}"
        if self._policy.unreachable == SKIP:
            return self._outcome("unreachable", [since])
        if self._policy.unreachable != DELETE:
            reason = (
                f"{since}, so its pods cannot end in order; bring it back, or remove it with consent "
                "when you know that nothing runs on it any more"
            )
            return self._outcome("stuck", [reason])
        silence = dead_node.prove_silence(self._api, node, self._policy.watch_seconds)
        if not silence.proven:
            self._say(f"{self._name}: {silence.evidence}; draining it in order")
            return None
        self._cordoned = cordon(self._api, self._name)
        deleted = dead_node.delete_pods(self._api, pods_of(self._api, self._name))
        return Outcome(self._name, "drained", deleted, [silence.evidence], self._cordoned)

    def _empty(self) -> Outcome:
        pauses = iter(_POLL_SECONDS)
        pause = next(pauses)
        left: list[Object] = []
        while True:
            trouble = ""
            try:
                left = [pod for pod in pods_of(self._api, self._name) if fate_of(pod) is not Fate.STAYS]
                # One that was bound to the node just before it was cordoned.
                reasons = refusals(left, self._policy)
                if reasons:
                    return self._outcome("stuck", reasons)
                if not left:
                    return self._outcome("drained")
                for pod in left:
                    self._evict(pod)
                lost = self._lost_meanwhile()
                if lost:
                    return lost
            except UnreachableError as error:
                trouble = str(error)
            self._tell(left, trouble)
            rest = self._end - time.monotonic()
            if rest <= 0:
                return self._outcome("stuck", [trouble] if trouble else self._reasons(left))
            time.sleep(min(pause, rest))
            pause = next(pauses, pause)

    def _lost_meanwhile(self) -> Outcome | None:
        """Look now and then whether the node is still there: its kubelet may die while it is drained."""
        if time.monotonic() < self._next_look:
            return None
        self._next_look = time.monotonic() + _LOOK_SECONDS
        node = self._api.find(node_path(self._name))
        if node is None:
            return self._outcome("drained")
        return self._unreachable(node) if dead_node.is_silent(node) else None

    def _evict(self, pod: Object) -> None:
        metadata = pod["metadata"]
        uid = str(metadata["uid"])
        self._seen[uid] = name_of(pod)
        refused_at = self._refused.get(uid, (0.0, ""))[0]
        waits = time.monotonic() < refused_at + _AGAIN_SECONDS
        if metadata.get("deletionTimestamp") or uid in self._asked or waits:
            return
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/eviction"
        try:
            self._api.request("POST", path, body, patience=0)
        except ApiError as error:
            if error.status in (404, 409):
                # It went by itself, or another one has its name now; the next look shows which.
                return
            if error.status == 401:
                raise
            self._refused[uid] = (time.monotonic(), error.message)
        else:
            self._refused.pop(uid, None)
            self._asked[uid] = time.monotonic()

    def _tell(self, left: Sequence[Object], trouble: str) -> None:
        held = [name_of(pod) for pod in left if str(pod["metadata"]["uid"]) in self._refused]
        text = f"{self._name}: {len(left)} {'pod' if len(left) == 1 else 'pods'} left to go"
        if trouble:
            text = f"{self._name}: waiting for the API"
        elif held:
            text += f"; the API refuses for now to evict {_some(held)}"
        if text != self._told:
            self._say(text)
            self._told = text

    def _reasons(self, left: Sequence[Object]) -> list[str]:
        return [self._reason(pod) for pod in left]

    def _reason(self, pod: Object) -> str:
        metadata = pod["metadata"]
        uid = str(metadata["uid"])
        if uid in self._refused and not metadata.get("deletionTimestamp"):
            return f"pod {name_of(pod)}: {self._budget(pod) or self._refused[uid][1]}"
        grace = pod.get("spec", {}).get("terminationGracePeriodSeconds", 30)
        finalizers = ", ".join(metadata.get("finalizers") or ())
        waits = f", its finalizers are {finalizers}" if finalizers else ""
        return f"pod {name_of(pod)} was told to end and has not; it has {grace} s for that{waits}"

    def _budget(self, pod: Object) -> str:
        """Return which budget holds a pod back, "" when none is found."""
        path = f"/apis/policy/v1/namespaces/{pod['metadata']['namespace']}/poddisruptionbudgets"
        try:
            budgets = budgets_of(pod, self._api.get(path)["items"])
        except ClusterError:
            return ""
        if len(budgets) > 1:
            names = ", ".join(str(budget["metadata"]["name"]) for budget in budgets)
            return f"has more than one PodDisruptionBudget ({names}), with which nothing can evict it"
        return budget_text(budgets[0]) if budgets else ""

    def _outcome(self, state: str, reasons: Sequence[str] = ()) -> Outcome:
        return Outcome(self._name, state, sorted(self._seen.values()), list(reasons), self._cordoned)


def _some(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
