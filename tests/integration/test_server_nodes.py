# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Servers that are nodes: what wipes them lets their nodes leave first, and wipes none whose node has not.

The servers are pretended ones of a real Ironic, their hosts and their cluster are simulated.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.config_drive import (
    Account,
    KnownHosts,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.declared_nodes import (
    expected_servers,
    racks_of,
    wanted_node,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_api import (
    IronicApi,
    connected,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.run import Consent, bring
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds._ironic_server import (
    BareMetalServer,
)

from ironspan.lab import ironic
from ironspan.lab.ironic import Ironic
from tests.support.fake_api import NODES, FakeApi
from tests.support.metal_site import ACCOUNT, FAKE, IMAGE, RACKS
from tests.support.simulated_nodes import KUBELET, LOOPBACK, NodeApi, Site, node_api
from tests.support.simulated_site import make_store

pytestmark = pytest.mark.lab
ADDRESS = "127.79.0.3"
SERVERS = """\
name,bmc_address,rack,position,nic1_mac
w1,192.0.2.1,a,1,5c:25:73:00:01:01
w2,192.0.2.2,a,2,5c:25:73:00:01:02
"""


class World(t.NamedTuple):
    """A site with two workers, each on a server of Ironic's.

    Args:
        folder: of its files.
        site: its playbooks.
        cluster: its API.
        servers: its Ironic.
    """

    folder: Path
    site: Site
    cluster: NodeApi
    servers: IronicApi

    @property
    def written(self) -> dict[str, str]:
        """When the state of each server changed last."""
        nodes = self.servers.nodes()
        return {name: self.servers.times(nodes[name][0])["provision_updated_at"] for name in ("w1", "w2")}

    @property
    def keys(self) -> dict[str, str]:
        """The host key of each server."""
        lines = (self.folder / "known_hosts").read_text().splitlines()
        return {line.split()[0].partition(",")[2]: line.split()[-1] for line in lines}

    def run(self, operation: str, *options: str, server: str = "w1") -> tuple[int, str]:
        """Run an operation about one server; its output is one line."""
        self.site.choose(operation)
        told = ("-e", f"ironspan_expected={self.folder / 'racks.csv'}", "-e", f"ironspan_servers={server}")
        status, output = self.site.finish(*told, *options)
        return status, " ".join(output.split())


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ironic]:
    with ironic.running(tmp_path_factory.mktemp("ironic")) as found:
        yield found


@pytest.fixture
def world(lab: Ironic) -> Iterator[World]:
    folder = Path(tempfile.mkdtemp(prefix="isn-", dir="/tmp"))
    store = make_store(folder)
    with FakeApi() as free:
        port = free.port
    site = Site(folder / "site", folder, ADDRESS, port)
    path = site.folder / "hosts.yml"
    inventory = yaml.safe_load(path.read_text())
    inventory["all"]["vars"] |= {
        "site_bare_metal_cloud": "lab", "site_bare_metal_clouds": str(lab.clouds),
        "site_bare_metal_node": FAKE, "site_bare_metal_inspect": False, "site_bare_metal_image": IMAGE,
        "site_bare_metal_racks": RACKS, "site_bare_metal_account": ACCOUNT,
        "site_bare_metal_known_hosts": str(folder / "known_hosts"),
        # Pretended hardware has no other step that can be asked for; site_lab lets it stand.
        "site_bare_metal_erase": ["bios.factory_reset"],
    }  # fmt: skip
    path.write_text(yaml.safe_dump(inventory, sort_keys=False))
    (folder / "racks.csv").write_text(SERVERS)
    servers = connected("lab", str(lab.clouds))
    kind = BareMetalServer(lambda: servers, Account.of(ACCOUNT), KnownHosts(str(folder / "known_hosts")))
    expected = expected_servers(str(folder / "racks.csv"))
    wanted = {one.name: wanted_node(one, FAKE, racks_of(RACKS), IMAGE, False) for one in expected}
    assert bring(kind, wanted, Consent(True), lambda text: None).problems == []
    try:
        with node_api(store, site, ADDRESS, port) as cluster:
            status, output = site.finish()
            assert status == 0, output
            cluster.add_pod("front", "w1")
            yield World(folder, site, cluster, servers)
    finally:
        site.close()
        for uuid, _ in servers.nodes().values():
            servers._ask("PUT", f"/nodes/{uuid}/maintenance", {"reason": "the test is over"})
            servers._ask("DELETE", f"/nodes/{uuid}")
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def kubelet_of(name: str) -> Iterator[None]:
    """Let a kubelet answer that nobody stops."""
    with socket.create_server((LOOPBACK[name], KUBELET)):
        yield


ALLOWED = ("-e", "ironspan_allow_destructive=true")


@pytest.mark.long
def test_without_consent_and_in_a_check_nothing_is_done(world: World) -> None:
    written, keys = world.written, world.keys
    status, output = world.run("server_redeploy")
    assert status != 0
    assert "this cannot be undone: take off w1 what ironspan put on it" in output, output
    status, output = world.run("server_redeploy", "--check", "--diff")
    assert status == 0, output
    assert "evict 1 pod within their disruption budgets" in output, output
    assert (world.written, world.keys) == (written, keys)
    assert (world.cluster.pods(), world.cluster.names(NODES)) == ({"front": "w1"}, ["w1", "w2"])


def test_a_node_leaves_before_its_server_is_written_again(world: World) -> None:
    written, keys = world.written, world.keys
    with kubelet_of("w1"):
        status, output = world.run("server_redeploy", *ALLOWED)
    assert status != 0
    assert "w1: a node of the cluster runs on it, which has not left" in output, output
    assert "its kubelet still answers" in output, output
    assert (world.written, world.keys) == (written, keys)

    # The run that was held is gone on with: nothing runs on w1 any more.
    status, output = world.run("server_redeploy", *ALLOWED)
    assert status == 0, output
    assert "afterwards w1 is a node again by: ironspan node add" in output, output
    assert (world.cluster.pods(), world.cluster.names(NODES)) == ({"front": "w2"}, ["w2"])
    assert (world.written["w1"] != written["w1"], world.written["w2"]) == (True, written["w2"])
    assert (world.keys["w1"] != keys["w1"], world.keys["w2"]) == (True, keys["w2"])


@pytest.mark.long
def test_one_plan_has_the_drain_and_the_wipe(world: World) -> None:
    plan = world.folder / "w1.plan.json"
    planning = ("-e", "ironspan_planned=server_redeploy", "-e", f"ironspan_plan_file={plan}")
    status, output = world.run("plan", *planning)
    assert status == 0, output
    before = world.written
    apply = ("-e", f"ironspan_plan={plan}")
    status, output = world.run("server_redeploy", *apply)
    assert status != 0 and "this cannot be undone" in output, output
    assert (world.written, world.cluster.names(NODES)) == (before, ["w1", "w2"])
    status, output = world.run("server_redeploy", *apply, *ALLOWED, server="w2")
    assert status != 0 and "the plan was made with" in output, output
    status, output = world.run("server_redeploy", *apply, *ALLOWED)
    assert status == 0, output
    assert (world.cluster.pods(), world.cluster.names(NODES)) == ({"front": "w2"}, ["w2"])
    assert (world.written["w1"] != before["w1"], world.written["w2"]) == (True, before["w2"])


@pytest.mark.long
def test_what_must_not_be_lost_and_what_is_no_worker_is_refused_before_anything(world: World) -> None:
    world.cluster.add_pod("lonely", "w1", lonely=True)
    before = world.written
    status, output = world.run("server_retire", *ALLOWED)
    assert status != 0
    assert "nothing was begun, because something would be lost" in output, output
    with (world.folder / "racks.csv").open("a") as file:
        file.write("a1,192.0.2.3,a,3,5c:25:73:00:01:03\n")
    status, output = world.run("server_retire", *ALLOWED, "-e", "ironspan_no_cluster=true", server="a1")
    assert status != 0
    assert "a1: control planes and etcd members do not come and go as workers do" in output, output
    assert (world.written, world.cluster.names(NODES)) == (before, ["w1", "w2"])
    status, output = world.run("server_retire", *ALLOWED, "-e", "ironspan_force_drain=true")
    assert status == 0, output
    assert world.cluster.names(NODES) == ["w2"]
    node = world.servers.nodes()["w1"][1]
    assert (node.state, node.retired) == ("manageable", True)
    assert len(list((world.folder / "erased").iterdir())) == 1
