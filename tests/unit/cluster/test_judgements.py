# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import etcd, nodes
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.expectations import ExpectedNode
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.node_check import node_problem
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.report import Check, Report, table
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Object
from hypothesis import given
from hypothesis import strategies as st


def member(name: str, **change: t.Any) -> etcd.Member:
    """A member of a healthy cluster of three."""
    number = name[-1]
    values: dict[str, t.Any] = {
        "healthy": True,
        "cluster": "c1",
        "member": number,
        "leader": "1",
        "version": "3.6.14",
        "revision": 10,
        "listed": ("1", "2", "3"),
        "hash": "77@10/1",
        **change,
    }
    return etcd.Member(name, f"10.98.0.1{number}", **values)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, ""),
        ({"error": "no answer within 10 s"}, "az-3 at 10.98.0.13 does not answer: no answer within 10 s"),
        ({"healthy": False}, "az-3 says it is not healthy"),
        ({"alarms": ("NOSPACE",)}, "az-3 reports the alarm NOSPACE"),
        ({"learner": True}, "az-3 is a learner"),
        ({"version": "3.6.13"}, "az-3 runs version 3.6.13, wanted 3.6.14"),
        ({"cluster": "c2"}, "different cluster ids: c1, c2"),
        ({"leader": "3"}, "different leaders: 1, 3"),
        ({"hash": "78@10/1"}, "different contents"),
        ({"hash": ""}, ""),
        ({"hash": "78@10/10"}, ""),
        ({"listed": ("1", "2")}, "az-3 knows 2 members, the inventory 3"),
        ({"listed": ("1", "2", "3", "4")}, "az-3 knows 4 members"),
    ],
)
def test_problems_of_members(change: dict[str, t.Any], problem: str) -> None:
    found = etcd.problems([member("az-1"), member("az-2"), member("az-3", **change)], "3.6.14")
    assert problem in "; ".join(found) if problem else found == []
    assert bool(found) == bool(problem)


def test_no_leader() -> None:
    found = etcd.problems([member(f"az-{n}", leader="0") for n in (1, 2, 3)])
    assert found == ["there is no leader"]


def node(ready: str = "True", version: str = "v1.36.4", address: str = "10.98.0.11") -> Object:
    return {
        "metadata": {"name": "az-1"},
        "status": {
            "conditions": [{"type": "Ready", "status": ready, "message": "because"}],
            "nodeInfo": {"kubeletVersion": version},
            "addresses": [{"type": "InternalIP", "address": address}],
        },
    }


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        (node(), ""),
        (None, "az-1 is not in the cluster"),
        (node("False"), "az-1 is not Ready: because"),
        (node("Unknown"), "az-1 is not Ready: because"),
        ({"metadata": {"name": "az-1"}, "status": {}}, "its kubelet has not reported"),
        (node(version="v1.36.3"), "az-1 runs kubelet v1.36.3, wanted v1.36.4"),
        (node(address="10.0.0.1"), "az-1 has the address 10.0.0.1, wanted 10.98.0.11"),
    ],
)
def test_problems_of_nodes(item: Object | None, problem: str) -> None:
    expected = ExpectedNode("az-1", "10.98.0.11", "1.36.4", True, False)
    found = node_problem(expected, item)
    assert problem in found if problem else not found


taints = st.lists(
    st.fixed_dictionaries(
        {"key": st.sampled_from(["a", "b", "c"]), "effect": st.sampled_from(["NoSchedule", "NoExecute"])},
        optional={"value": st.sampled_from(["", "x"])},
    ),
    max_size=5,
    unique_by=lambda taint: (taint["key"], taint["effect"]),
)


@given(present=taints, before=taints, wanted=taints)
def test_taints_of_others_stay_and_ours_become_as_declared(
    present: t.Any, before: t.Any, wanted: t.Any
) -> None:
    remembered = json.dumps(sorted(nodes._identities(before)))
    item = {
        "metadata": {"name": "n", "annotations": {nodes.ANNOTATION: remembered}},
        "spec": {"taints": present},
    }
    merged = nodes.merged_taints(item, nodes.Declared({}, wanted))
    ours = nodes._identities(before) | nodes._identities(wanted)
    assert [x for x in merged if nodes._identity(x) not in ours] == [
        x for x in present if nodes._identity(x) not in ours
    ]
    assert [x for x in merged if nodes._identity(x) in ours] == list(wanted)
    settled = {
        "metadata": {
            "name": "n",
            "annotations": {nodes.ANNOTATION: json.dumps(sorted(nodes._identities(wanted)))},
        },
        "spec": {"taints": merged},
    }
    assert nodes.plan(settled, nodes.Declared({}, wanted)) is None


@pytest.mark.parametrize("text", ["", "{", "5", "null", '{"a": 1}'])
def test_damaged_annotation_is_not_fatal(text: str) -> None:
    item = {"metadata": {"name": "n", "annotations": {nodes.ANNOTATION: text}}}
    assert nodes.merged_taints(item, nodes.Declared({})) == []


def report(*verdicts: bool | None) -> Report:
    checks = [
        Check(f"check-{i}", ok, "x", [] if ok else ["bad"], [{"a": 1}]) for i, ok in enumerate(verdicts)
    ]
    return Report("lab", "2026-11-21T12:00:00+00:00", 1.5, checks)


@pytest.mark.parametrize(
    ("verdicts", "ok"), [([True, True], True), ([True, None], True), ([True, False], False), ([], True)]
)
def test_verdict_of_a_report(verdicts: list[bool | None], ok: bool) -> None:
    made = report(*verdicts)
    assert made.ok is ok
    assert made.as_json()["ok"] is ok
    assert ("FAILED" in made.as_text()) is not ok


def test_report_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "verify.json"
    report(True, False).write(path)
    content = json.loads(path.read_text())
    assert content["schema"] == 1
    assert content["checks"][1] == {
        "name": "check-1",
        "ok": False,
        "summary": "x",
        "problems": ["bad"],
        "evidence": [{"a": 1}],
        "seconds": 0.0,
    }
    assert [entry.name for entry in path.parent.iterdir()] == ["verify.json"]


def test_table() -> None:
    rows = [{"name": "a", "count": 10}, {"name": "long name", "count": 2}]
    assert table(rows) == "name       count\na          10\nlong name  2"
    assert table([]) == ""


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (TimeoutError("timed out"), "no answer within 10 s"),
        (TimeoutError(110, "Connection timed out"), "no answer within 10 s"),
        (ValueError("HTTP 401 for /v3/maintenance/status"), "HTTP 401 for /v3/maintenance/status"),
        (KeyError(), "KeyError"),
    ],
)
def test_sentence_for_a_member_that_does_not_answer(error: Exception, sentence: str) -> None:
    assert etcd.sentence_of(error) == sentence
