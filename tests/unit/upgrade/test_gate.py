# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a gate sees, and how the addons follow."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import rollouts
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.upgrade import addons, drivers, gate

from .tables import NEW, OLD, Content, cluster, host, node, workload

WORKER = host("rack-1", "nodes", "gvisor")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, ""),
        ({"kubelet": OLD}, "rack-1 runs kubelet 1.36.4, wanted 1.37.1"),
        ({"containerd": "2.3.4"}, "rack-1 runs containerd 2.3.4, wanted 2.3.7"),
        ({"ready": "False"}, "rack-1 is not Ready: why"),
        ({"budget": (1, 2)}, "disruption budget a/b: 1 pods are healthy, it insists on 2"),
        ({"budget": (2, 2)}, ""),
        ({"pod": "False"}, "not ready: flannel on rack-1"),
    ],
)
def test_the_gate_after_nodes(change: Content, says: str) -> None:
    changed = node(
        "rack-1", change.get("kubelet", NEW), change.get("containerd", "2.3.7"), change.get("ready", "True")
    )
    api = cluster({}, [changed])
    if "budget" in change:
        healthy, desired = change["budget"]
        status = {"currentHealthy": healthy, "desiredHealthy": desired, "expectedPods": 3}
        budget = {"metadata": {"namespace": "a", "name": "b"}, "status": status}
        api.answers["/apis/policy/v1/poddisruptionbudgets"] = {"items": [budget]}
    if "pod" in change:
        conditions = [{"type": "Ready", "status": change["pod"]}]
        pod = {
            "metadata": {"name": "flannel"},
            "spec": {"nodeName": "rack-1"},
            "status": {"conditions": conditions},
        }
        api.answers["/api/v1/namespaces/kube-system/pods"] = {"items": [pod]}
    found = gate.node_problems(t.cast(t.Any, api), [WORKER], {})
    assert says in " ".join(found)
    assert bool(found) == bool(says)


PREFLIGHT = {"type": drivers.PREFLIGHT, "message": "A03: 12 TFLOP/s"}


@pytest.mark.parametrize(
    ("boots", "condition", "mode", "says"),
    [
        ({}, {}, "", ""),
        ({"rack-1": "b"}, {}, "", ""),
        ({"rack-1": "c"}, {}, "", "rack-1 was rebooted, and its kubelet has not reported since"),
        ({"rack-2": "c"}, {}, "", ""),
        ({}, {"status": "True"}, "repair", ""),
        ({}, {"status": "False"}, "", "the GPUs of rack-1 failed their preflight: A03: 12 TFLOP/s"),
        ({}, {"status": "Unknown"}, "", ""),
        ({}, {"status": "Unknown"}, "watch", ""),
        ({}, {"status": "Unknown"}, "gate", "the GPUs of rack-1 have not passed their preflight yet: A03"),
    ],
)
def test_a_rebooted_node_is_back_when_its_kubelet_and_its_gpus_say_so(
    boots: dict[str, str], condition: Content, mode: str, says: str
) -> None:
    back = node("rack-1", NEW, "2.3.7")
    back["status"]["nodeInfo"]["bootID"] = "b"
    if condition:
        back["status"]["conditions"].append({**PREFLIGHT, **condition})
    declared = {"gpu_repair_enabled": bool(mode), "gpu_repair_mode": mode}
    changed = dataclasses.replace(WORKER, variables={**WORKER.variables, **declared})
    found = gate.node_problems(t.cast(t.Any, cluster({}, [back])), [changed], boots)
    assert " ".join(found).startswith(says)
    assert bool(found) == bool(says)


@pytest.mark.parametrize(("mode", "waits"), [("gate", True), ("repair", True), ("watch", False)])
def test_a_new_node_is_waited_for_also_before_its_agent_has_said_anything(mode: str, waits: bool) -> None:
    back = node("rack-1", NEW, "2.3.7")
    back["spec"] = {"taints": [{"key": "ironspan.io/gpu-preflight", "effect": "NoSchedule"}]}
    declared = {"gpu_repair_enabled": True, "gpu_repair_mode": mode}
    changed = dataclasses.replace(WORKER, variables={**WORKER.variables, **declared})
    found = gate.node_problems(t.cast(t.Any, cluster({}, [back])), [changed], {})
    said = "the GPUs of rack-1 have not passed their preflight yet: the agent has said nothing yet"
    assert found == ([said] if waits else [])


def test_a_gate_waits_and_tells_what_for_only_when_it_changes() -> None:
    answers = iter([["a"], ["a"], ["b"], []])
    told: list[str] = []
    assert rollouts.until(lambda: next(answers), 5, told.append, pause=0) == []
    assert told == ["waiting: a", "waiting: b"]
    assert rollouts.until(lambda: ["never"], 0) == ["never"]


@pytest.mark.parametrize(
    ("proxy", "coredns", "changed"),
    [
        (NEW, "1.14.7", []),
        (OLD, "1.14.7", ["daemonsets/kube-proxy"]),
        (NEW, "1.14.6", ["deployments/coredns"]),
    ],
)
def test_addons_follow(proxy: str, coredns: str, changed: list[str]) -> None:
    api = cluster({}, [], proxy, coredns)
    found = addons.follow(t.cast(t.Any, api), NEW, "1.14.7")
    assert [text.partition(":")[0] for text in found] == changed
    assert len(api.merged) == len(changed)
    for path, body in api.merged:
        image = body["spec"]["template"]["spec"]["containers"][0]["image"]
        assert image.endswith(f":v{NEW}" if "proxy" in path else ":v1.14.7")
    assert addons.follow(t.cast(t.Any, cluster({}, [], OLD, "1.14.6")), NEW, "1.14.7", dry_run=True) != []


@pytest.mark.parametrize(
    ("item", "done"),
    [
        (workload("Deployment", "x:v1.0.0", updatedReplicas=2, availableReplicas=2, replicas=2), True),
        (workload("Deployment", "x:v1.0.0", updatedReplicas=2, availableReplicas=2, replicas=3), False),
        (workload("DaemonSet", "x:v1.0.0", desiredNumberScheduled=2, updatedNumberScheduled=1), False),
        ({**workload("Deployment", "x:v1.0.0"), "metadata": {"generation": 2}}, False),
    ],
)  # fmt: skip
def test_a_rollout(item: Content, done: bool) -> None:
    assert rollouts.is_done(item) == done
