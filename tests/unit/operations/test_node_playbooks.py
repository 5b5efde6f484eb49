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
from tests.support.simulated_nodes import NodeApi, Site, node_api
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
