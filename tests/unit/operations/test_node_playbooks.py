# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The playbooks for workers on simulated hosts: consent, check mode, a host that is dead."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import dead_node

from tests.support.fake_api import NODES, FakeApi
from tests.support.playbooks import recap_of
from tests.support.simulated_nodes import PODS, NodeApi, Site, node_api
from tests.support.simulated_site import make_store

ADDRESS = "127.79.0.1"
W1 = {"ironspan_hosts": "w1"}
CONSENT = {**W1, "ironspan_allow_destructive": True}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, NodeApi]]:
    """A site whose two workers have joined; w1 has a pod."""
    folder = tmp_path_factory.mktemp("nodes")
    store = make_store(folder)
    with FakeApi() as free:
        port = free.port
    site = Site(folder / "site", folder, ADDRESS, port)
    with node_api(store, site, ADDRESS, port) as api:
        status, output = site.finish()
        assert status == 0, output
        api.add_pod("front", "w1")
        yield site, api


def test_without_consent_nothing_is_done(built: tuple[Site, NodeApi]) -> None:
    site, api = built
    before = site.snapshot()
    site.choose("node_remove", **W1)
    status, output = site.finish()
    assert status != 0
    assert "this cannot be undone: take off w1" in output
    status, output = site.finish("--check")
    assert status == 0, output
    assert recap_of(output)["w1"]["changed"] == 3
    assert site.snapshot() == before
    assert api.names(NODES) == ["w1", "w2"]
    assert api.pods() == {"front": "w1"}


def test_a_dead_host_is_forgotten_and_named(
    built: tuple[Site, NodeApi], monkeypatch: pytest.MonkeyPatch
) -> None:
    site, api = built
    monkeypatch.setattr(api, "dead", {"w1"})
    path: Path = site.folder / "hosts.yml"
    alive = path.read_text()
    inventory = yaml.safe_load(alive)
    inventory["all"]["hosts"]["w1"] |= {"ansible_connection": "ssh", "ansible_port": 9}
    path.write_text(yaml.safe_dump(inventory))
    site.choose("node_remove", **CONSENT)
    status, output = site.finish()
    path.write_text(alive)
    assert status == 0, output
    assert "not reset, because they did not answer: w1" in output
    assert recap_of(output)["w1"]["unreachable"] == 0
    assert api.names(NODES) == ["w2"]
    assert api.pods() == {"front": "w2"}
    assert dead_node.WATCH_SECONDS > 10, "longer than a kubelet takes to renew its lease"


def test_a_plan_that_forces_drains_works_once(built: tuple[Site, NodeApi], tmp_path: Path) -> None:
    """Signed once, it emptied nodes again and again until it expired."""
    site, api = built
    plan = tmp_path / "w2.plan.json"
    asked = {"ironspan_hosts": "w2", "ironspan_force_drain": "true"}
    told = [option for name, value in asked.items() for option in ("-e", f"{name}={value}")]

    def run(operation: str, *options: str) -> tuple[int, str]:
        site.choose(operation)
        # Another controller: it has the PKI store and the plan, and none of the former runs.
        return site.finish(*options, XDG_STATE_HOME=str(tmp_path / f"controller-{len(api.asked)}"))

    del api.objects[f"{PODS}/front"]  # it starts again on w2 only
    api.add_pod("lonely", "w2", lonely=True)
    status, output = run(
        "plan", *told, "-e", "ironspan_planned=node_remove", "-e", f"ironspan_plan_file={plan}"
    )
    assert status == 0, output
    planned = (*told, "-e", f"ironspan_plan={plan}", "-e", "ironspan_allow_destructive=true")
    status, output = run("node_remove", *planned)
    assert status == 0, output
    assert "w2" not in api.names(NODES)
    assert "lonely" not in api.pods()
    status, output = run("node_remove", *planned)
    assert status != 0
    assert "the plan is used up: it has drained w2 and was carried out" in " ".join(output.split())

    status, output = run("node_add", "-e", "ironspan_hosts=w2")
    assert status == 0, output
    api.add_pod("another", "w2", lonely=True)
    before = site.snapshot()
    for options in (planned, (*planned, "--check")):
        status, output = run("node_remove", *options)
        assert status != 0
        assert "it has drained w2, and another Node has the name now; make a new plan" in " ".join(
            output.split()
        )
        assert site.snapshot() == before
        assert "w2" in api.names(NODES)
        assert "another" in api.pods()
