# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import datetime
import os
import subprocess
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils import processes
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import smoke, smoke_run
from hypothesis import given
from hypothesis import strategies as st

nodes = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=120).map(
    lambda flags: [smoke.SmokeNode(f"node-{i}", cp, gv) for i, (cp, gv) in enumerate(flags)]
)


@given(nodes=nodes)
def test_every_node_and_runtime_has_its_pod(nodes: list[smoke.SmokeNode]) -> None:
    pods = smoke.lay_out(nodes)
    wanted = {(node.name, "runc") for node in nodes} | {(n.name, "gvisor") for n in nodes if n.gvisor}
    assert {(pod.node, pod.runtime) for pod in pods} == wanted
    assert len({pod.name for pod in pods}) == len(pods) == len(wanted)


@given(nodes=nodes)
def test_groups_are_small_and_the_count_of_peers_is_right(nodes: list[smoke.SmokeNode]) -> None:
    pods = smoke.lay_out(nodes)
    for pod in pods:
        members = [other for other in pods if other.group in pod.peer_groups]
        assert pod in members
        assert pod.peers == len(members) <= 2 * smoke.GROUP_SIZE
    assert max(sum(pod.group == group for pod in pods) for group in {pod.group for pod in pods}) <= 16


@given(nodes=nodes)
def test_up_to_32_pods_all_ask_each_other_and_more_form_one_ring(nodes: list[smoke.SmokeNode]) -> None:
    pods = smoke.lay_out(nodes)
    if len(pods) <= 2 * smoke.GROUP_SIZE:
        assert {pod.peers for pod in pods} == {len(pods)}
    seen, group = [], 0
    while group not in seen:
        seen.append(group)
        group = next(pod for pod in pods if pod.group == group).peer_groups[-1]
    assert sorted(seen) == sorted({pod.group for pod in pods})


TWO = [smoke.SmokeNode("az-1", True, False), smoke.SmokeNode("rack-1", False, True)]


def test_small_site() -> None:
    pods = smoke.lay_out(TWO)
    assert [(pod.name, pod.node, pod.asks) for pod in pods] == [
        ("runc-0000", "az-1", "workers"),
        ("runc-0001", "rack-1", "control-plane"),
        ("gvisor-0002", "rack-1", "control-plane"),
    ]
    services = smoke.services("space", pods)
    assert [service["metadata"]["name"] for service in services] == ["control-plane", "workers", "peers-0"]
    # A pod stops being ready when its probe ends; those that are still asking would be left without anybody.
    assert all(service["spec"]["publishNotReadyAddresses"] for service in services)


@pytest.mark.parametrize("index", [0, 1, 2])
def test_pod_keeps_to_the_restricted_standard(index: int) -> None:
    layout = smoke.lay_out(TWO)[index]
    addresses = {"control-plane": "10.96.0.8", "workers": "10.96.0.9"}
    pod = smoke.pod(layout, "space", "cluster.local", addresses, 60)
    spec = pod["spec"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not spec["automountServiceAccountToken"]
    assert spec.get("runtimeClassName") == (None, None, "gvisor")[index]
    assert spec["activeDeadlineSeconds"] == 120
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert set(container["resources"]) == {"requests", "limits"}
    environment = {entry["name"]: entry["value"] for entry in spec["containers"][1]["env"]}
    assert environment["SERVICE_ADDRESS"] == addresses[layout.asks]
    assert environment["PEER_GROUPS"] == "peers-0.space.svc.cluster.local."
    assert environment["PEERS"] == "3"


GOOD = {
    "sandbox": "",
    "kernel": "Linux version 6.18.0 (x)",
    "dns_cluster": "10.96.0.1",
    "dns_service": "10.96.0.9",
    "service": "runc-0001",
    "peers": "3/3",
    "known": "3",
    "unreached": "",
    "failed": "0",
}
IN_GVISOR = {"sandbox": "[    0.000000] Starting gVisor..."}
Case = tuple[str, dict[str, str], str]
CASES: list[Case] = [
    ("runc", {}, ""),
    ("gvisor", IN_GVISOR, ""),
    ("gvisor", {}, "it does not run in gVisor but on Linux version 6.18.0 (x)"),
    ("runc", IN_GVISOR, "it runs in gVisor though it asked for no RuntimeClass"),
    ("runc", {"dns_cluster": "", "failed": "1"}, "DNS does not answer for kubernetes.default"),
    ("runc", {"dns_service": "", "failed": "1"}, "DNS does not answer for the service"),
    ("runc", {"service": "", "failed": "1"}, "does not answer at its cluster address"),
    ("runc", {"known": "2", "failed": "1"}, "DNS names 2 of 3 peers"),
    ("runc", {"known": "", "failed": "1"}, "DNS names 0 of 3 peers"),
    ("runc", {"unreached": "10.244.1.5 10.244.2.7", "failed": "1"}, "it cannot reach 10.244.1.5 10.244.2.7"),
    ("runc", {"failed": "1"}, "it needed longer than it had"),
]


def terminated(findings: dict[str, str]) -> dict[str, t.Any]:
    message = "\n".join(f"{name}={value}" for name, value in findings.items())
    probe = {"name": "probe", "state": {"terminated": {"exitCode": 0, "message": message}}}
    return {"status": {"podIP": "10.244.1.4", "containerStatuses": [{"name": "serve"}, probe]}}


@pytest.mark.parametrize(("runtime", "change", "problem"), CASES)
def test_judgement_of_a_pod(runtime: str, change: dict[str, str], problem: str) -> None:
    pod = next(pod for pod in smoke.lay_out(TWO) if pod.runtime == runtime)
    found = smoke_run.result(pod, terminated({**GOOD, **change}))
    assert problem in found.problem if problem else not found.problem
    assert found.address == "10.244.1.4"


@pytest.mark.parametrize("message", [{}, {"nonsense": ""}, {"dns_cluster": "10.96.0.1"}])
def test_probe_without_a_whole_result_is_a_problem(message: dict[str, str]) -> None:
    found = smoke_run.result(smoke.lay_out(TWO)[0], terminated(message))
    assert found.problem == "the probe left no result"


WAITING = {"name": "probe", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
CREATING = {"name": "probe", "state": {"waiting": {"reason": "ContainerCreating"}}}
UNSCHEDULED = {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (None, "phase unknown"),
        ({"status": {"phase": "Pending"}}, "phase Pending, its containers were not started"),
        ({"status": {"phase": "Pending", "containerStatuses": [CREATING]}}, "phase Pending"),
        ({"status": {"phase": "Pending", "containerStatuses": [WAITING]}}, "ImagePullBackOff no such image"),
        ({"status": {"phase": "Pending", "conditions": [UNSCHEDULED]}}, "0/2 nodes are available"),
        ({"status": {"phase": "Failed", "message": "Pod was active too long"}}, "Pod was active too long"),
    ],
)
def test_pod_without_a_result_says_why(item: t.Any, reason: str) -> None:
    found = smoke_run.result(smoke.lay_out(TWO)[0], item)
    assert found.problem.startswith("no result in time: ")
    assert reason in found.problem


NOW = datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("deadline", "over"),
    [
        ("2026-11-21T11:59:59+00:00", True),
        ("2026-11-21T12:00:01+00:00", False),
        ("2026-11-21T12:00:01", True),
        ("", True),
        ("soon", True),
    ],
)
def test_deadline_of_leftovers(deadline: str, over: bool) -> None:
    assert smoke_run._is_over_time(deadline, NOW) is over


def test_living_and_dead_owners() -> None:
    mine = smoke_run._this_process()
    assert not smoke_run._is_dead(mine)
    machine, process, start = mine.rsplit("/", 2)
    assert smoke_run._is_dead(f"{machine}/{process}/{int(start) + 1}"), "its number was given to another"
    assert smoke_run._is_dead(f"{machine}/{2**22 + 1}/{start}")
    assert not smoke_run._is_dead(f"elsewhere/{2**22 + 1}/{start}"), "another machine's cannot be judged"
    for text in ("", "/", "//", "x", f"{machine}/x/1"):
        assert not smoke_run._is_dead(text)


def test_an_owner_whose_exit_status_nobody_asked_for_is_dead() -> None:
    machine = smoke_run._this_process().rsplit("/", 2)[0]
    with subprocess.Popen(["sleep", "600"]) as process:
        owner = f"{machine}/{process.pid}/{processes.started(process.pid)}"
        assert not smoke_run._is_dead(owner)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert smoke_run._is_dead(owner)


@pytest.mark.parametrize(
    ("flags", "asks"),
    [
        ([True, False], ["workers", "control-plane"]),
        ([True, True], ["control-plane", "control-plane"]),
        ([False, False], ["workers", "workers"]),
    ],
)
def test_a_service_without_pods_is_never_asked(flags: list[bool], asks: list[str]) -> None:
    pods = smoke.lay_out([smoke.SmokeNode(f"n-{i}", flag, False) for i, flag in enumerate(flags)])
    assert [pod.asks for pod in pods] == asks
