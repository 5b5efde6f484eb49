# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which nodes go back to the GPU driver of before, and what a run that was killed left of that."""

from __future__ import annotations

import dataclasses
import json
import types
import typing as t
from collections.abc import Mapping

import pytest
from ansible_collections.ironspan.hybrid.plugins.action.upgrade_gate import ActionModule
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import cordon
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations import upgrade
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.upgrade import drivers
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.upgrade.drivers import Change

from .tables import NEW, Content, Table, cluster, context, host, node

BEFORE, AFTER, OTHER = "570.1.1", "580.2.2", "590.3.3"
GOING, BACK = Change(BEFORE, AFTER), Change(BEFORE, AFTER, back=True)


def gpu_host(name: str = "rack-1", version: str = AFTER) -> t.Any:
    plain = host(name, "nodes", "gpu")
    return dataclasses.replace(plain, variables={**plain.variables, "nvidia_driver_version": version})


def gpu_node(
    name: str = "rack-1",
    runs: str = AFTER,
    verdict: bool | None = None,
    change: Change | None = None,
    **more: t.Any,
) -> Content:
    """Return a node that has booted into ``b``; its verdict is of ``of``."""
    found = node(name, NEW, "2.3.7", closed=True)
    found["status"]["nodeInfo"]["bootID"] = more.get("boot", "b")
    found["metadata"]["resourceVersion"] = "1"
    notes = found["metadata"]["annotations"]
    notes[cordon.ANNOTATION] = "2026-11-26T00:00:00Z"
    notes["ironspan.io/gpu-seen"] = json.dumps({"boot": "b", "driver": runs})
    if change:
        notes[cordon.DRIVER_CHANGE] = change.text()
    if verdict is not None:
        said = {"boot": more.get("of", "b"), "driver": more.get("driver", runs), "passed": verdict}
        notes["ironspan.io/gpu-preflight"] = json.dumps(said)
        condition = {"type": drivers.PREFLIGHT, "status": str(verdict), "message": "A03: 12 TFLOP/s"}
        found["status"]["conditions"].append(condition)
    return found


def api_of(*nodes: Content) -> Table:
    table = cluster({}, list(nodes))
    table.answers |= {cordon.node_path(each["metadata"]["name"]): each for each in nodes}
    return table


@pytest.mark.parametrize(
    ("found", "wanted", "says"),
    [
        (gpu_node(runs=BEFORE), AFTER, GOING),
        (gpu_node(runs=BEFORE, change=GOING), AFTER, GOING),
        # Cut off before anything was seen to pass: the next run judges it still.
        (gpu_node(change=GOING), AFTER, GOING),
        (gpu_node(change=GOING, verdict=False), AFTER, GOING),
        (gpu_node(change=GOING, verdict=True), AFTER, None),
        (gpu_node(runs="", change=GOING), AFTER, GOING),
        # On its way back, whatever runs by now; another version in the inventory is another attempt.
        (gpu_node(change=BACK), AFTER, BACK),
        (gpu_node(runs=BEFORE, change=BACK), AFTER, BACK),
        (gpu_node(runs=BEFORE, change=BACK), OTHER, Change(BEFORE, OTHER)),
        (gpu_node(runs=BEFORE, change=BACK), BEFORE, None),
        (gpu_node(change=GOING), "", None),
        (gpu_node(), AFTER, None),
        # What it says it runs is of another boot.
        (gpu_node(runs=BEFORE, boot="c"), AFTER, None),
    ],
)
def test_what_is_noted_before_a_driver_changes(found: Content, wanted: str, says: Change | None) -> None:
    assert drivers.noted(found, wanted) == says


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"before": 1, "to": "2"}', '{"to": "2"}', "[" * 9999])
def test_a_note_that_is_none(text: str) -> None:
    found = gpu_node()
    found["metadata"]["annotations"][cordon.DRIVER_CHANGE] = text
    assert drivers.change_of(found) is None


@pytest.mark.parametrize(
    ("found", "boots", "goes"),
    [
        (gpu_node(change=GOING, verdict=False), {}, True),
        (gpu_node(change=GOING, verdict=False), {"rack-1": "b"}, True),
        (gpu_node(change=GOING, verdict=True), {}, False),
        (gpu_node(change=GOING), {}, False),
        # Its driver is not of this wave: a broken GPU, which no other driver makes whole.
        (gpu_node(verdict=False), {}, False),
        (gpu_node(change=Change(BEFORE, OTHER), verdict=False), {}, False),
        # It failed again with the driver of before.
        (gpu_node(runs=BEFORE, change=BACK, verdict=False), {}, False),
        # The verdict is of the boot before, of another driver, or its kubelet has not reported yet.
        (gpu_node(change=GOING, verdict=False, of="a"), {}, False),
        (gpu_node(change=GOING, verdict=False, driver=BEFORE), {}, False),
        (gpu_node(runs=BEFORE, change=GOING, verdict=False), {}, False),
        (gpu_node(change=GOING, verdict=False), {"rack-1": "c"}, False),
    ],
)
def test_who_goes_back(found: Content, boots: Mapping[str, str], goes: bool) -> None:
    names = drivers.failed(t.cast(t.Any, api_of(found)), [gpu_host()], boots)
    assert names == (["rack-1"] if goes else [])


def test_hosts_without_a_declared_driver_are_not_asked_about() -> None:
    api = t.cast(t.Any, Table({}))
    assert drivers.note(api, [host("rack-1", "nodes")]) == []
    assert drivers.failed(api, [host("rack-1", "nodes"), gpu_host(version="")], {}) == []


def gate(nodes: list[Content], hosts: list[t.Any], **arguments: t.Any) -> tuple[Content, Table, list[str]]:
    """Ask the gate of a wave, with no patience."""
    api, said = api_of(*nodes), list[str]()
    session: t.Any = types.SimpleNamespace(api=lambda: api)
    me: t.Any = types.SimpleNamespace(say=said.append, _way_back=lambda *_: "somehow")
    given = {"boots": {}, "returning": [], "keep_driver": False, **arguments}
    return ActionModule._nodes(me, session, hosts, given, 0), api, said


def test_one_that_failed_goes_back_and_the_report_names_it() -> None:
    nodes = [gpu_node(change=GOING, verdict=False), gpu_node("rack-2", change=GOING, verdict=True)]
    found, api, said = gate(nodes, [gpu_host(), gpu_host("rack-2")])
    assert (found["back"], found.get("failed")) == (["rack-1"], None)
    assert found["problems"] == ["the GPUs of rack-1 failed their preflight: A03: 12 TFLOP/s"] == said
    assert "The GPUs of rack-1 failed" in found["report"] and "rack-2" not in found["report"]
    ((path, body),) = api.merged
    assert path == cordon.node_path("rack-1")
    assert json.loads(body["metadata"]["annotations"][cordon.DRIVER_CHANGE]) == dataclasses.asdict(BACK)


def test_one_that_is_kept_stops_the_wave_as_it_is() -> None:
    found, api, _ = gate([gpu_node(change=GOING, verdict=False)], [gpu_host()], keep_driver=True)
    assert found["failed"] and not api.merged
    assert "rack-1 keeps the driver that failed and stays cordoned" in found["rollback"]


def test_one_that_fails_with_the_driver_of_before_too_stops_the_wave() -> None:
    broken = gpu_node(runs=BEFORE, change=BACK, verdict=False)
    found, api, _ = gate([broken], [gpu_host()], returning=["rack-1"])
    assert found["failed"] and not api.merged
    assert "not that driver's doing" in found["rollback"]


def test_one_that_is_back_opens_the_gate_and_still_ends_the_run() -> None:
    well = gpu_node(runs=BEFORE, change=BACK, verdict=True)
    found, _, _ = gate([well], [gpu_host()], returning=["rack-1"])
    assert not found.get("failed") and found["back"] == []
    assert "no other wave begins" in found["report"]


def test_a_wave_without_failures_has_nothing_to_report() -> None:
    found, api, said = gate([gpu_node(change=GOING, verdict=True)], [gpu_host()])
    assert found == {"changed": False, "returning": [], "back": [], "report": ""}
    assert not api.merged and not said


def test_notes_are_written_once_and_go_when_the_node_is_uncordoned() -> None:
    first = gpu_node(runs=BEFORE)
    api = api_of(first, gpu_node("rack-2", change=BACK))
    assert drivers.note(t.cast(t.Any, api), [gpu_host(), gpu_host("rack-2")]) == ["rack-2"]
    ((path, body),) = api.merged
    assert (path, json.loads(body["metadata"]["annotations"][cordon.DRIVER_CHANGE])) == (
        cordon.node_path("rack-1"),
        dataclasses.asdict(GOING),
    )
    assert cordon.uncordon(t.cast(t.Any, api), "rack-2")
    assert api.merged[-1][1]["metadata"]["annotations"] == {
        cordon.ANNOTATION: None,
        cordon.DRIVER_CHANGE: None,
    }


@pytest.mark.parametrize(
    ("change", "actions"), [(GOING, ["drain", "upgrade-node"]), (BACK, ["drain", "upgrade-node"]), (None, [])]
)
def test_the_next_run_takes_up_what_a_killed_one_left(change: Change | None, actions: list[str]) -> None:
    """Nobody names the node; one that is only left cordoned is uncordoned and nothing else."""
    hosts = [host("az-1", "etcd", "control_plane"), gpu_host()]
    api = cluster({"az-1": NEW}, [node("az-1", NEW, "2.3.7"), gpu_node(change=change)], proxy=NEW)
    steps = upgrade.steps(context(api, hosts, etcd="3.7.3"))
    assert [step.action for step in steps if step.target == "rack-1"] == [*actions, "uncordon"]


@pytest.mark.parametrize(("keep", "says"), [(None, True), (True, False)])
def test_the_plan_says_that_a_driver_may_go_back(keep: bool | None, says: bool) -> None:
    hosts = [host("az-1", "etcd", "control_plane"), gpu_host()]
    api = cluster({"az-1": NEW}, [node("az-1", NEW, "2.3.7"), gpu_node()], proxy=NEW)
    given = {"ironspan_keep_driver": keep} if keep else {}
    about = context(api, hosts, etcd="3.7.3", named=[hosts[1]], arguments=given)
    (step,) = (step for step in upgrade.steps(about) if step.action == "upgrade-node")
    assert ("goes back with another if its GPUs fail" in step.what) is says
