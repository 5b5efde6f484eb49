# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The actions on nodes: what they refuse, hold back, hand on to later tasks and tell in the end."""

from __future__ import annotations

import contextlib
import socket
import types
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.ironspan.hybrid.plugins.action import node_delete, node_drain, nodes_ready, verify
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import replacements
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import cordon, drain
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.run_folder import RunFolder

from tests.support.fake_nodes import FakeCluster, serving
from tests.unit.operations.test_workers import WORKERS, host, site, whole

DRAIN: dict[str, t.Any] = {
    "state": "drained",
    "timeout_s": 60,
    "skip_unreachable": False,
    "delete_unreachable": False,
    "replacing": False,
    "force": False,
    "removed": [],
    "unreached": [],
    "on_stuck": "fail",
}


@pytest.fixture(autouse=True)
def run_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Give each test a run of its own."""
    monkeypatch.setattr(drain, "_POLL_SECONDS", (0.1,))
    for module in (node_drain, node_delete):
        monkeypatch.setattr(module, "RunFolder", lambda: RunFolder(tmp_path))
    return tmp_path


@contextlib.contextmanager
def acting(
    module: t.Any, cluster: FakeCluster, *hosts: t.Any, check: bool = False, most: int = 1
) -> Iterator[t.Callable[..., t.Any]]:
    """Return the action's visit, with a session on the cluster; ``visit.groups`` has the groups it adds."""
    action = module.ActionModule.__new__(module.ActionModule)
    action._task = types.SimpleNamespace(check_mode=check)
    groups: dict[str, list[str]] = {}
    action.add_host = lambda name, parent_group_names: groups.setdefault(parent_group_names[0], []).append(
        name
    )
    action.say = lambda text: None
    with serving(cluster) as api:
        session = types.SimpleNamespace(
            site=site(*(hosts or WORKERS), most=most), api=lambda patience=30: api
        )

        def visit(**arguments: t.Any) -> t.Any:
            return action.visit(session, arguments)

        visit.groups = groups  # type: ignore[attr-defined]
        yield visit


def test_a_drain_that_fails_says_all_reasons() -> None:
    cluster = whole()
    cluster.add_budget("front", 4)
    with acting(node_drain, cluster) as visit:
        result = visit(**{**DRAIN, "timeout_s": 1}, hosts=["w1", "w3"])
    assert result["failed"]
    assert "w1: pod web/pod-w1: PodDisruptionBudget web/front" in result["msg"]
    assert "w3: pod web/pod-w3" in result["msg"]
    assert "kubectl uncordon" in result["msg"]


def test_a_wave_goes_on_without_those_that_got_stuck_and_their_rack_waits() -> None:
    cluster = whole()
    cluster.add_pod("lonely", "w1", owner="")
    options = {**DRAIN, "on_stuck": "continue"}
    with acting(node_drain, cluster) as visit:
        first = visit(**options, hosts=["w1", "w3"])
        assert (first["drained"], list(first["stuck"])) == (["w3"], ["w1"])
        assert not first.get("failed")
        # w2 is in the rack of w1
        second = visit(**options, hosts=["w2"])
        assert second["drained"] == []
        assert "as many hosts of its rack got stuck" in second["stuck"]["w2"][0]
        assert cluster.names_on("w2") == ["pod-w2"]
        report = visit(
            **{**DRAIN, "state": "reported", "removed": ["w3", "w1"], "unreached": ["w3"]}, hosts=[]
        )
    assert report["failed"]
    assert "w1: pod web/lonely has no controller" in report["msg"]
    assert "w2: not begun" in report["msg"]
    assert report["notes"][0].startswith("removed: w3.")
    assert report["notes"][1].startswith("not reset, because they did not answer: w3.")


def test_hosts_that_were_held_back_hold_nobody_back() -> None:
    hosts = [host(f"w{number}") for number in range(1, 6)]
    cluster = FakeCluster()
    for item in hosts:
        cluster.add_node(item.name)
    cluster.add_pod("lonely", "w1", owner="")
    options = {**DRAIN, "on_stuck": "continue"}
    with acting(node_drain, cluster, *hosts, most=2) as visit:
        assert visit(**options, hosts=["w1"])["drained"] == []
        second = visit(**options, hosts=["w2", "w3"])
        assert (second["drained"], list(second["stuck"])) == (["w2"], ["w3"])
        assert visit(**options, hosts=["w4"])["drained"] == ["w4"]


def test_nothing_stuck_is_nothing_to_report() -> None:
    with acting(node_drain, whole()) as visit:
        assert visit(**{**DRAIN, "state": "reported"}, hosts=[]) == {
            "changed": False,
            "stuck": {},
            "notes": [],
        }


def test_a_check_says_what_would_go() -> None:
    cluster = whole()
    cluster.add_pod("lonely", "w2", owner="")
    with acting(node_drain, cluster, check=True) as visit:
        result = visit(**DRAIN, hosts=["w1", "w2"])
    assert result["evicted"]["w1"] == ["web/pod-w1"]
    assert list(result["stuck"]) == ["w2"]
    assert not result.get("failed")
    assert {method for method, _path in cluster.requests} == {"GET"}


def test_hosts_that_are_no_nodes_are_refused() -> None:
    with acting(node_drain, whole()) as visit, pytest.raises(AnsibleActionFail, match="hosts has db, w9"):
        visit(**DRAIN, hosts=["w1", "db", "w9"])


def test_only_nodes_closed_here_are_opened() -> None:
    cluster = whole()
    cluster.nodes["w2"]["spec"]["unschedulable"] = True
    with acting(node_drain, cluster) as visit:
        visit(**DRAIN, hosts=["w1"])
        result = visit(**{**DRAIN, "state": "schedulable"}, hosts=["w1", "w2", "w3"])
    assert (result["opened"], result["left_cordoned"]) == (["w1"], ["w2"])
    assert "closed by somebody else" in result["warnings"][0]
    assert not cordon.is_cordoned(cluster.nodes["w1"])


def test_new_machines_are_not_drained_for_the_old_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = whole()
    monkeypatch.setattr(replacements, "noted", lambda api: {"w1": "another", "w2": "node-w2"})
    monkeypatch.setattr(replacements, "note", lambda api, nodes: None)
    with acting(node_drain, cluster) as visit:
        result = visit(**{**DRAIN, "replacing": True}, hosts=["w1", "w2"])
    assert sorted(result["drained"]) == ["w1", "w2"]
    assert cluster.names_on("w1") == ["pod-w1"]
    assert cluster.names_on("w2") == []
    with acting(node_delete, cluster) as visit:
        result = visit(hosts=["w1", "w2"], replacing=True, timeout_s=1)
    assert result["deleted"] == ["w2"]
    assert "w1" in cluster.nodes


def test_a_node_goes_only_when_its_kubelet_has_stopped() -> None:
    cluster = whole()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        cluster.nodes["w2"]["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] = port
        with acting(node_delete, cluster) as visit:
            result = visit(hosts=["w1", "w2", "w9"], replacing=False, timeout_s=1)
            assert visit.groups == {node_delete.REMOVED_GROUP: ["w1", "w9"]}  # type: ignore[attr-defined]
    assert result["deleted"] == ["w1"]
    assert f"its kubelet still answers at 127.0.0.1:{port}" in result["stuck"]["w2"][0]
    assert sorted(cluster.nodes) == ["cp", "w2", "w3"]


def test_a_check_deletes_no_node() -> None:
    cluster = whole()
    with acting(node_delete, cluster, check=True) as visit:
        assert visit(hosts=["w1"], replacing=False, timeout_s=1)["deleted"] == ["w1"]
    assert "w1" in cluster.nodes


def test_nodes_that_do_not_come_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    for name in ("w1", "w2"):
        cluster.add_node(name, "True" if name == "w1" else "False")["status"]["nodeInfo"] = {
            "kubeletVersion": "v1.36.4"
        }
    forgotten: list[str] = []
    monkeypatch.setattr(replacements, "forget", lambda api, names: forgotten.extend(names))
    with acting(nodes_ready, cluster, host("w1"), host("w2")) as visit:
        assert visit(hosts=["w1", "w2"], timeout_s=1, replaced=True, boots={})["failed"]
        assert forgotten == []
        assert visit(hosts=["w1"], timeout_s=60, replaced=True, boots={})["ready"] == ["w1"]
    assert forgotten == ["w1"]


@pytest.mark.parametrize(("check", "waits"), [(True, 0), (False, 120)])
def test_a_check_does_not_wait_for_a_kubelet_that_was_stopped(
    monkeypatch: pytest.MonkeyPatch, check: bool, waits: int
) -> None:
    waited: list[float] = []

    def looked(api: object, context: object, expected: object, seconds: float, **_: object) -> t.Any:
        waited.append(seconds)
        return types.SimpleNamespace(ok=True, as_text=lambda: "", as_json=dict)

    monkeypatch.setattr(verify, "verify", looked)
    monkeypatch.setattr(verify, "expected", lambda site: types.SimpleNamespace(_replace=lambda **_: None))
    action = verify.ActionModule.__new__(verify.ActionModule)
    action._task = types.SimpleNamespace(check_mode=check)
    session: t.Any = types.SimpleNamespace(
        site=types.SimpleNamespace(is_slice=False),
        api=lambda: types.SimpleNamespace(text=lambda path: ""),
        etcd_context=lambda: None,
    )
    action.visit(session, {"timeout": 120, "report": "", "image": ""})
    assert waited == [waits]
