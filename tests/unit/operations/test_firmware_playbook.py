# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Firmware's playbook, simulated nodes, an Ironic in memory: drained, updated, opened, or left closed."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.fake_api import NODES, FakeApi
from tests.support.ironic_in_memory import Answer
from tests.support.simulated_nodes import PODS, NodeApi, Site, node_api
from tests.support.simulated_site import make_store
from tests.unit.bare_metal.test_firmware import OLD, Serviced

pytestmark = pytest.mark.long
ADDRESS = "127.79.0.5"
VERSION = "1.6.7"


class Refusing(Serviced):
    """An Ironic whose BMCs of some servers refuse firmware."""

    refuses: frozenset[str] = frozenset()

    def _serviced(self, node: dict[str, t.Any], body: t.Any) -> Answer:
        self.ends = "refused" if node["name"] in self.refuses else "well"
        return super()._serviced(node, body)


@contextlib.contextmanager
def over_http(session: Serviced) -> Iterator[str]:
    """Answer for an Ironic in memory, and return its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            path = self.path.removeprefix("/v1")
            about = {"id": "v1", "version": "1.104", "min_version": "1.1", "status": "CURRENT"}
            links = [{"rel": "self", "href": f"http://{self.headers['Host']}/v1/"}]
            answer = (
                Answer(200, {"versions": [{**about, "links": links}], "default_version": about})
                if path in ("", "/")
                else session.request(path, self.command, json=body)
            )
            self.send_response(answer.status_code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        do_GET = do_PUT = do_PATCH = do_DELETE = do_POST = _do

        def log_message(self, format: str, *args: t.Any) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class World(t.NamedTuple):
    """Two nodes, and their servers in Ironic."""

    site: Site
    cluster: NodeApi
    servers: Refusing

    def run(self, *options: str) -> tuple[int, str]:
        """Run the operation about all servers; its output is one line."""
        self.site.choose("server_firmware")
        expected = f"ironspan_expected={self.site.folder / 'racks.csv'}"
        status, output = self.site.finish("-e", expected, *options)
        return status, " ".join(output.split())

    def closed(self) -> list[str]:
        """Return the nodes that take no pods."""
        nodes = {name: self.cluster.objects[f"{NODES}/{name}"] for name in self.cluster.names(NODES)}
        return [name for name, node in nodes.items() if node.get("spec", {}).get("unschedulable")]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    store = make_store(tmp_path)
    with FakeApi() as free:
        port = free.port
    site, servers = Site(tmp_path / "site", tmp_path, ADDRESS, port), Refusing()
    rows = ["name,bmc_address,rack,position,firmware_bios"]
    for number, name in enumerate(("w1", "w2"), 1):
        body = {"name": name, "driver": "redfish", "firmware_interface": "redfish"}
        entry = servers.request("/nodes", "POST", json=body).json()
        servers.nodes[entry["uuid"]]["provision_state"] = "active"
        runs = [{"component": component, "current_version": version} for component, version in OLD.items()]
        servers.firmware[entry["uuid"]] = {"firmware": runs}
        rows.append(f"{name},192.0.2.{number},a,{number},{VERSION}")
    (site.folder / "racks.csv").write_text("\n".join(rows) + "\n")
    with over_http(servers) as url, node_api(store, site, ADDRESS, port) as cluster:
        cloud = {"auth_type": "none", "auth": {"endpoint": url}, "baremetal_endpoint_override": url}
        (site.folder / "clouds.yaml").write_text(json.dumps({"clouds": {"lab": cloud}}))
        path = site.folder / "hosts.yml"
        inventory = yaml.safe_load(path.read_text())
        file = {"component": "bios", "version": VERSION, "file": "bios.bin", "sha256": "a1" * 32, "size": 9}
        inventory["all"]["vars"] |= {
            "site_bare_metal_cloud": "lab", "site_bare_metal_clouds": str(site.folder / "clouds.yaml"),
            "site_bare_metal_firmware": [file], "site_bare_metal_firmware_url": "http://10.2.0.5/images",
        }  # fmt: skip
        path.write_text(yaml.safe_dump(inventory, sort_keys=False))
        status, output = site.finish()
        assert status == 0, output
        cluster.add_pod("front", "w1")
        yield World(site, cluster, servers)
    site.close()


def test_one_that_fails_stays_closed_and_the_next_run_opens_it(world: World) -> None:
    world.servers.refuses = frozenset({"w1"})
    status, output = world.run()
    assert status != 0
    assert "w1: a U1: its firmware was not updated, 'service failed'" in output, output
    assert "the image is not signed" in output
    # As many of the rack are out of service as may be: w2 is not begun, and stays open.
    assert "w2: not begun: as many hosts of its rack got stuck as may be out of service" in output, output
    assert (world.closed(), world.cluster.pods()) == (["w1"], {"front": "w2"})
    # Pods of this cluster start on w2 again, also where that is drained.
    del world.cluster.objects[f"{PODS}/front"]

    world.servers.refuses = frozenset()
    status, output = world.run()
    assert status == 0, output
    assert (world.closed(), len(world.servers.steps)) == ([], 3)
    status, output = world.run()
    assert status == 0 and len(world.servers.steps) == 3, output
    assert "close w1" not in output and "close w2" not in output
