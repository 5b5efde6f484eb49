# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The last stage of moving a cluster, killed after every write, and what is refused before and after it."""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import json
import subprocess
import types
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.action import cilium_alone, cluster_objects
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cilium import alone, migration, rollout
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import rollouts
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations import cni_migrate
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import Context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import day_zero
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError, Step

from tests.support.fake_moved import CONFIGURATION, Moved
from tests.support.fake_networks import ADDRESSES, DirectApi, Killed
from tests.unit.operations.test_workers import WORKERS
from tests.unit.operations.test_workers import site as site_of

ALL = [alone.ENFORCE, alone.FLANNEL, alone.PROXY, alone.RECORD]
NETWORK = ipaddress.IPv4Network("10.250.0.0/16")
NODES = ("w1", "w2", "w3", "cp")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollouts, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(rollout, "POLL_S", 0.01)
    monkeypatch.setattr(cilium_alone, "objects_alone", lambda site: [CONFIGURATION])


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Return a site that is being moved, and remembers what its cluster was made with."""
    store = tmp_path / "pki"
    store.mkdir()
    (store / "store.json").write_text('{"site_uid": "1"}')
    made = dataclasses.replace(site_of(*WORKERS), pki_store=str(store))
    day_zero.remember(made)
    made.migration_cidr = str(NETWORK)
    return made


def session_of(site: Site, api: DirectApi) -> t.Any:
    return types.SimpleNamespace(site=site, api=lambda patience=30: api)


def steps(site: Site, cluster: Moved, to: str = cni_migrate.ONLY, **more: str) -> list[Step]:
    arguments = {"ironspan_pod_network": to, **more}
    return cni_migrate.steps(Context(session_of(site, DirectApi(cluster)), arguments, "cni_migrate"))


def act(site: Site, api: DirectApi, part: str, to: str = cni_migrate.ONLY, check: bool = False) -> t.Any:
    action: t.Any = cilium_alone.ActionModule.__new__(cilium_alone.ActionModule)
    action._task = types.SimpleNamespace(check_mode=check)
    action.said = []
    action.say = action.said.append
    result = action.visit(session_of(site, api), {"to": to, "part": part, "timeout_s": 5})
    return {**result, "said": action.said}


def finish(site: Site, api: DirectApi) -> list[str]:
    """Do what the playbook does; return what was said last."""
    act(site, api, "cluster")
    return list(act(site, api, "record")["said"])


def is_finished(site: Site, cluster: Moved) -> bool:
    """Tell whether nothing is left of flannel and kube-proxy, and the site knows it."""
    gone = not cluster.flannel and not {*alone.OF_FLANNEL, *alone.OF_PROXY} & set(cluster.objects)
    known = day_zero.carried_by(site.pki_store), day_zero.made_with(site.pki_store)["site_pod_cidr"]
    return gone and cluster.enforces and not cluster.node_configs and known == ("cilium", str(NETWORK))


def test_the_plan_and_the_stage(site: Site) -> None:
    cluster = Moved(*NODES)
    planned = steps(site, cluster)
    assert [(step.action, step.target, step.destructive) for step in planned] == [
        (part, "", part != alone.RECORD) for part in ALL
    ]
    assert planned[0].arithmetic == "0 policies, in 0 namespaces"
    assert not [method for method, _path in cluster.requests if method != "GET"]
    said = finish(site, DirectApi(cluster))
    assert is_finished(site, cluster)
    assert sorted(name for name, _image in cluster.tasks) == sorted(NODES)
    assert {image for _name, image in cluster.tasks} == {"flannel:1"}
    assert said[-1].startswith("write site_cni: cilium and site_pod_cidr: 10.250.0.0/16 into the inventory")
    assert steps(site, cluster) == []
    assert act(site, DirectApi(cluster), "cluster")["changed"] is False
    assert act(site, DirectApi(cluster), "record")["changed"] is False


def test_a_run_killed_anywhere_is_finished_by_the_next(site: Site) -> None:
    file = day_zero.file_of(site.pki_store)
    before = file.read_bytes()
    for most in range(200):
        file.write_bytes(before)
        cluster = Moved("w1", "cp")
        api = DirectApi(cluster)
        api.writes_left = most
        with contextlib.suppress(Killed):
            finish(site, api)
        whole = api.writes_left >= 0
        assert is_finished(site, cluster) == whole
        if not whole:
            assert day_zero.carried_by(site.pki_store) == "flannel", "recorded before it was true"
            left = [step.action for step in steps(site, cluster)]
            assert left and left == [part for part in ALL if part in left]
        finish(site, DirectApi(cluster))
        assert is_finished(site, cluster), most
        if whole:
            assert most > len(alone.OF_FLANNEL) + len(alone.OF_PROXY)
            return
    raise AssertionError("never ran to its end")


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("label", lambda one: one.nodes["w2"]["metadata"].update(labels={}), "w2 is not moved"),
        (
            "down",
            lambda one: one.nodes["w2"]["status"]["conditions"][0].update(status="Unknown"),
            "w2 is not Ready",
        ),
        (
            "closed",
            lambda one: one.nodes["w2"]["metadata"]["annotations"].update({"ironspan/cordoned": "x"}),
            "w2 was not opened again",
        ),
        (
            "stray",
            lambda one: one.pods["web", "logs-w2"]["status"].update(podIP=ADDRESSES["flannel"]),
            "w2 has 1 pods without an address in 10.250.0.0/16",
        ),
    ],
)
def test_flannel_stays_while_it_may_be_needed(
    site: Site, name: str, change: t.Callable[[Moved], None], says: str
) -> None:
    cluster = Moved(*NODES)
    change(cluster)
    with pytest.raises(OperationError, match=says):
        steps(site, cluster)
    with pytest.raises(ClusterError, match=says):
        act(site, DirectApi(cluster), "cluster")
    assert not cluster.enforces and cluster.flannel == set(NODES), name
    assert not day_zero.last_stage_begun(site.pki_store)


def test_what_else_is_refused(site: Site) -> None:
    cluster = Moved(*NODES)
    with pytest.raises(OperationError, match="about the whole cluster"):
        steps(site, cluster, ironspan_hosts="w1")
    refusal = "'cilium-alone' is none of its values; write cilium-only; one of cilium, flannel, cilium-only"
    with pytest.raises(OperationError, match=refusal):
        steps(site, cluster, to="cilium-alone")
    day_zero.file_of(site.pki_store).unlink()
    with pytest.raises(OperationError, match="nobody has written down"):
        steps(site, cluster)


def test_from_its_beginning_on_there_is_no_way_back(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Moved(*NODES)
    cluster.failing_tasks = True
    with pytest.raises(ClusterError, match="take away what flannel left"):
        act(site, DirectApi(cluster), "cluster")
    assert cluster.enforces and not cluster.runs_flannel()
    for to in ("flannel", "cilium"):
        with pytest.raises(OperationError, match="the last stage of the move has begun"):
            steps(site, cluster, to=to)
    # site.yml with the inventory of before would configure agents as they were beside flannel.
    action: t.Any = cluster_objects.ActionModule.__new__(cluster_objects.ActionModule)
    with pytest.raises(ClusterError, match="has begun"):
        action.visit(session_of(site, DirectApi(cluster)), {"layers": ["cilium"]})
    cluster.failing_tasks = False
    finish(site, DirectApi(cluster))
    assert is_finished(site, cluster)


def test_other_runs_and_checks_change_nothing(site: Site) -> None:
    cluster = Moved(*NODES)
    api = DirectApi(cluster)
    api.writes_left = 0
    for to in ("cilium", "flannel"):
        assert act(site, api, "cluster", to=to) == {"changed": False, "done": [], "said": []}
    assert act(site, api, "cluster", check=True)["changed"] is True
    assert not day_zero.last_stage_begun(site.pki_store)


def test_agents_that_do_not_come_up_leave_flannel_alone(site: Site) -> None:
    cluster = Moved(*NODES)
    cluster.sets[rollout.AGENT]["status"]["observedGeneration"] = 0
    with pytest.raises(ClusterError, match="Cilium does not run everywhere"):
        alone.enforce(DirectApi(cluster), [CONFIGURATION], 0.05, lambda text: None)
    assert cluster.runs_flannel() and cluster.node_configs


def test_a_stage_that_cannot_be_remembered_does_not_begin(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(day_zero, "write_file", refuse)
    cluster = Moved(*NODES)
    with pytest.raises(ClusterError, match="Read-only file system"):
        act(site, DirectApi(cluster), "cluster")
    assert not cluster.enforces


def test_the_script_takes_away_what_is_there_and_nothing_else(tmp_path: Path) -> None:
    """Run on stand-ins of ip and nft, with another folder in the place of /sys and /host."""
    for name in ("flannel.1", "cni0", "eth0", "cilium_vxlan"):
        (tmp_path / "net" / name).mkdir(parents=True)
    for name in ("10-flannel.conflist", "10-flannel.conflist.cilium_bak"):
        (tmp_path / name).touch()
    (tmp_path / "05-cilium.conflist").touch()
    calls = tmp_path / "calls"
    for program, code in (("ip", 0), ("nft", 1)):
        file = tmp_path / program
        file.write_text(f'#!/bin/sh\necho {program} "$@" >>{calls}\nexit {code}\n')
        file.chmod(0o755)
    script = alone._CLEAN.replace("/sys/class/net", f"{tmp_path}/net").replace("/host", str(tmp_path))
    for _again in range(2):
        subprocess.run(
            ["/bin/sh", "-c", script], check=True, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, timeout=300
        )
        for name in ("flannel.1", "cni0"):
            if (tmp_path / "net" / name).exists():
                (tmp_path / "net" / name).rmdir()
    assert calls.read_text().splitlines() == [
        "ip link delete flannel.1",
        "ip link delete cni0",
        "nft delete table ip flannel-ipv4",
        "nft delete table ip6 flannel-ipv6",
        "nft delete table ip flannel-ipv4",
        "nft delete table ip6 flannel-ipv6",
    ]
    assert not list(tmp_path.glob("*flannel*"))
    assert (tmp_path / "05-cilium.conflist").exists()


def test_the_objects_are_those_of_a_site_with_cilium_alone(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    asked: list[Site] = []

    def renderer(after: Site) -> t.Any:
        asked.append(after)
        return types.SimpleNamespace(objects=lambda layer: [{"layer": layer}]), None

    monkeypatch.setattr(cilium_alone, "renderer_for", renderer)
    assert cilium_alone.objects_alone(site) == [{"layer": "cilium"}]
    (after,) = asked
    assert (after.cni, after.pod_cidr, after.migration_cidr) == ("cilium", str(NETWORK), "")
    assert (site.cni, site.migration_cidr) == ("flannel", str(NETWORK))


def test_the_record_keeps_what_else_is_known(site: Site) -> None:
    day_zero.begin_last_stage(site.pki_store)
    day_zero.moved(site)
    known = json.loads(day_zero.file_of(site.pki_store).read_text())
    assert known["site_uid"] == "1" and known["site_service_cidr"] == site.service_cidr
    assert day_zero.last_stage_begun(site.pki_store)
    assert migration.NODE_CONFIG not in known
