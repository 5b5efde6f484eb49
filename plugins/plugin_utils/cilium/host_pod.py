# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""One program run once on a node, in a pod of the host's network: no pod network has to work for it."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import rollouts
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.pods import MANAGED_BY

_PODS = "/api/v1/namespaces/kube-system/pods"
_MOUNT = "/host"
_LONGEST_SECONDS = 900
"""After which it ends by itself, controller or not; on a machine with a load of 140 it needed two minutes."""


class Task(t.NamedTuple):
    """What to run.

    Args:
        why: what it is for, a clause for people.
        image: one that the node has.
        command: program and arguments.
        folder: a folder of the host, at ``/host`` in the pod.
    """

    why: str
    image: str
    command: Sequence[str]
    folder: str = "/run"


def path_of(node: str) -> str:
    """Return the path of the pod; a node has one at a time."""
    return f"{_PODS}/{_name(node)}"


def _name(node: str) -> str:
    return f"ironspan-cni-migrate-{node}"


def body(node: str, task: Task) -> Object:
    """Return the pod."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        # These labels tell a drain that nobody misses it, should a killed run leave it behind.
        "metadata": {"name": _name(node), "namespace": "kube-system", "labels": dict(MANAGED_BY)},
        "spec": {
            "nodeName": node,
            "hostNetwork": True,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": _LONGEST_SECONDS,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "priorityClassName": "system-node-critical",
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {
                    "name": "task",
                    "image": task.image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": list(task.command),
                    "securityContext": {"privileged": True},
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                    "volumeMounts": [{"name": "host", "mountPath": _MOUNT}],
                }
            ],
            "volumes": [{"name": "host", "hostPath": {"path": task.folder, "type": "Directory"}}],
        },
    }


def run(api: Api, node: str, task: Task, seconds: float, say: Callable[[str], None]) -> None:
    """Run it and take it away; one that a killed run left is taken away first.

    Raises:
        ClusterError: it failed, or it took longer than ``seconds``.
    """
    path = path_of(node)
    _insist(rollouts.until(lambda: _absent(api, path), seconds, say), node, task)
    api.apply(path, body(node, task))
    problems = rollouts.until(lambda: _unfinished(api, path), seconds, say)
    pod = api.find(path)
    if not problems and pod is None:
        problems = ["somebody deleted its pod, another run perhaps"]
    elif not problems and pod and pod.get("status", {}).get("phase") != "Succeeded":
        problems = [_message(pod)]
    _insist(problems, node, task)
    api.delete(path)


def _insist(problems: Sequence[str], node: str, task: Task) -> None:
    if problems:
        raise ClusterError(
            f"Could not {task.why}: {'; '.join(problems)}.",
            f"See kubectl -n kube-system describe pod {_name(node)}; then run this again.",
        )


def _absent(api: Api, path: str) -> list[str]:
    return ["the pod of an earlier run is still there"] if api.delete(path) else []


def _unfinished(api: Api, path: str) -> list[str]:
    pod = api.find(path)
    phase = pod.get("status", {}).get("phase") if pod else "Gone"
    return [] if phase in ("Succeeded", "Failed", "Gone") else [f"its pod is {phase or 'not seen yet'}"]


def _message(pod: Object) -> str:
    for status in pod.get("status", {}).get("containerStatuses") or ():
        ended = status.get("state", {}).get("terminated") or {}
        if ended.get("message"):
            return str(ended["message"]).strip().splitlines()[-1]
    return str(pod.get("status", {}).get("message") or "its pod failed")
