# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which idle nodes are asked for a preflight, and what their agents read of it."""

from __future__ import annotations

import datetime
import json
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy import idle

from ironspan.gpu_repair import model
from ironspan.gpud import actions
from ironspan.gpud.preflight import ask

NOW = 1.8e9
DAY = 86400.0


def stamp(at: float) -> str:
    return datetime.datetime.fromtimestamp(at, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def node(name: str, days: float | None = None, **more: t.Any) -> dict[str, t.Any]:
    """Return a node that is ready, whose preflight is as many days old."""
    annotations: dict[str, str] = {model.SEEN: "[]"}
    if days is not None:
        annotations[model.PREFLIGHT] = json.dumps({"started": stamp(NOW - days * DAY)})
    annotations |= more.get("annotations", {})
    conditions = [{"type": "Ready", "status": "True"}, *more.get("conditions", ())]
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "7", "annotations": annotations},
        "spec": more.get("spec", {}),
        "status": {"conditions": conditions},
    }


def pod(on: str, phase: str = "Running", part: str = "containers", resource: str = "nvidia.com/gpu") -> t.Any:
    container = {"resources": {"limits": {resource: "1"}}}
    return {"spec": {"nodeName": on, part: [container]}, "status": {"phase": phase}}


def choose(*nodes: t.Any, pods: t.Any = (), most: int = 4, days: int = 7) -> idle.Choice:
    names = [each["metadata"]["name"] for each in nodes]
    return idle.choose(names, nodes, pods, most=most, days=days, now=NOW)


def test_names_are_those_of_the_agent_and_the_repair_controller() -> None:
    assert (idle.ACTION, idle.DONE, idle.VERDICT) == (model.ACTION, model.DONE, model.PREFLIGHT)
    assert (idle.RECORD, idle.SEEN, idle.CONDITION) == (model.RECORD, model.SEEN, ask.CONDITION)
    assert {model.PREFLIGHT_TAINT, model.REPAIR_TAINT} == idle.TAINTS
    assert str(model.State.READY) == "ready"


def test_those_first_whose_last_one_is_the_longest_ago_and_no_more_than_allowed() -> None:
    made = choose(node("a", 8), node("b"), node("c", 30), node("d", 9), node("e", 6.9), most=3)
    assert [one.node for one in made.asked] == ["b", "c", "d"]
    assert made.left == {"a": "3 are tested at the same time", "e": "tested less than 7 days ago"}


def test_the_agent_takes_what_is_written_and_each_request_is_another() -> None:
    first, second = choose(node("a"), node("b")).asked
    read = actions.read(first.action)
    assert read is not None
    assert (read.do, read.gpu, read.expires) == ("preflight", "", NOW + idle.ANSWER_S)
    assert read.id != getattr(actions.read(second.action), "id", None)


ASKED = {"id": "1", "do": "preflight", "expires": stamp(NOW + 60)}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (
            {"conditions": [{"type": "GPUPreflight", "status": "Unknown", "reason": "Running"}]},
            idle.TESTED_NOW,
        ),
        ({"annotations": {model.ACTION: json.dumps(ASKED)}}, idle.TESTED_NOW),
        ({"annotations": {model.ACTION: json.dumps(ASKED), model.DONE: '{"id":"1"}'}}, ""),
        ({"annotations": {model.ACTION: json.dumps({**ASKED, "expires": stamp(NOW - 1)})}}, ""),
        ({"annotations": {model.ACTION: "[[["}}, ""),
        ({"annotations": {model.RECORD: '{"state":"triage"}'}}, "it is in repair"),
        ({"annotations": {model.RECORD: '{"state":"ready"}'}}, ""),
        ({"spec": {"taints": [{"key": model.REPAIR_TAINT}]}}, "it is in repair"),
        ({"spec": {"taints": [{"key": model.PREFLIGHT_TAINT}]}}, "has to pass a preflight"),
        ({"spec": {"taints": [{"key": "team"}]}}, ""),
        ({"spec": {"unschedulable": True}}, "it is cordoned"),
        ({"annotations": {model.PREFLIGHT: '{"started": 7}'}}, ""),
    ],
)
def test_who_is_left_alone(more: dict[str, t.Any], why: str) -> None:
    made = choose(node("a", **more))
    assert bool(made.asked) is not bool(why)
    assert why in made.left.get("a", "")


def test_a_node_that_is_not_there_or_has_no_agent_or_does_not_answer() -> None:
    silent, down = node("silent"), node("down")
    del silent["metadata"]["annotations"]
    down["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    made = idle.choose(["gone", "silent", "down"], [silent, down], [], most=4, days=7, now=NOW)
    assert made.asked == []
    assert made.left == {
        "gone": "there is no such node",
        "silent": "its agent has never named its GPUs",
        "down": "it is not Ready",
    }


@pytest.mark.parametrize(
    ("found", "works"),
    [
        (pod("a"), True),
        (pod("a", phase="Pending", part="initContainers"), True),
        (pod("a", resource="nvidia.com/mig-1g.10gb"), True),
        (pod("a", phase="Succeeded"), False),
        (pod("a", resource="cpu"), False),
        (pod("b"), False),
        ({"spec": {"nodeName": "a", "containers": [{}]}, "status": {}}, False),
    ],
)
def test_a_node_whose_gpus_a_pod_uses_is_not_disturbed(found: t.Any, works: bool) -> None:
    assert bool(choose(node("a"), pods=[found]).asked) is not works


def test_those_that_are_tested_already_count() -> None:
    busy = node("z", conditions=[{"type": "GPUPreflight", "status": "Unknown", "reason": "Running"}])
    assert [one.node for one in choose(node("a"), node("b"), busy, most=2).asked] == ["a"]
    assert choose(node("a"), busy, busy, most=0).asked == []


def test_people_are_told_who_is_asked_and_why_others_are_not() -> None:
    made = choose(node("a"), node("b", 8), *(node(f"n-{number:02}", 1) for number in range(12)))
    names = ", ".join(f"n-{number:02}" for number in range(10))
    assert idle.told(made.asked, made.left) == [
        "a: asked for a preflight (last one: never)",
        f"b: asked for a preflight (last one: {stamp(NOW - 8 * DAY)[:10]})",
        f"not asked, tested less than 7 days ago: {names} and 2 more",
    ]
