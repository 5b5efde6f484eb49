# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""From a server that is off to a system that answers SSH: real Ironic, real agent, UEFI with Secure Boot."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ironspan.lab.errors import LabError
from ironspan.lab.virtual import servers, world
from ironspan.lab.virtual.servers import USER, Server
from ironspan.lab.virtual.world import World

openstack = pytest.importorskip("openstack")
pytestmark = [pytest.mark.lab, pytest.mark.long]
STEP_S = 1800.0
"""Of one step of Ironic's: an emulated server on a machine that does other things takes minutes to start."""


class Stages:
    """Notes how long each stage took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._began = time.monotonic()

    def done(self, name: str) -> None:
        """Note that a stage ended."""
        now = time.monotonic()
        self.seconds[name], self._began = now - self._began, now
        print(f"{name}: {self.seconds[name]:.1f} s", flush=True)


@pytest.fixture(scope="module")
def stages() -> Stages:
    return Stages()


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory, stages: Stages) -> Iterator[World]:
    if os.geteuid() != 0:
        pytest.skip("virtual servers need root: a bridge")
    if lacking := servers.missing():
        pytest.skip(f"virtual servers need: apt-get install -y {' '.join(lacking)}")
    try:
        world.images()
    except LabError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("rack")
    try:
        found = world.up(folder, 1, lambda *step: print(*step))
        stages.done("servers, BMCs and Ironic up")
        yield found
    finally:
        world.down(folder)


@pytest.fixture(scope="module")
def api(rack: World) -> Any:
    cloud = json.loads(rack.ironic.clouds.read_text())["clouds"]["lab"]
    return openstack.connection.Connection(**cloud).baremetal


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _key(tmp_path_factory.mktemp("key") / "login")


def _key(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path], check=True)
    return path


def test_a_server_that_is_off_becomes_a_system_whose_key_was_known_before(
    rack: World, api: Any, key: Path, stages: Stages, tmp_path: Path
) -> None:
    server = rack.servers[0]
    node = enrolled(api, rack, server)
    stages.done("enrolled")
    assert api.get_node(node.id).power_state in (None, "power off")
    for verb in ("manage", "provide"):
        api.set_node_provision_state(node, verb, wait=True, timeout=STEP_S)
    stages.done("available")
    host_key = _key(tmp_path / "host")
    image = world.images()["server-disk"]
    api.update_node(
        node,
        instance_info={
            "image_source": image.url, "image_os_hash_algo": "sha256", "image_os_hash_value": image.sha256,
            "image_disk_format": "raw", "image_type": "whole-disk",
        },
    )  # fmt: skip
    api.set_node_provision_state(node, "active", config_drive=config_drive(server, key, host_key))
    waits_for(api, node.id, "wait call-back")
    stages.done("media made, switched on")
    waits_for(api, node.id, "active")
    stages.done("agent started, disk written, active")
    known = tmp_path / "known_hosts"
    known.write_text(f"{server.address} {' '.join(host_key.with_suffix('.pub').read_text().split()[:2])}\n")
    said = asked(server, key, known, "hostname; mokutil --sb-state; systemctl is-system-running --wait")
    stages.done("first start of the system")
    assert said.split("\n")[:3] == [server.name, "SecureBoot enabled", "running"]
    shadow = asked(server, key, known, "cut -d: -f2 /etc/shadow")
    assert {line[:1] for line in shadow.split()} <= {"*", "!"}, "somebody has a password"
    addresses = asked(server, key, known, "ip -brief -4 address show scope global")
    assert f" {server.address}/24" in addresses
    assert len(addresses.split("\n")) == 2, "it asked for another address beside its own"
    size = asked(server, key, known, "df --output=size --block-size=1G /").split()[-1]
    assert int(size) >= server.disk_gib - 1, "the root did not grow to the disk"
    api.set_node_provision_state(node, "deleted", wait=True, timeout=STEP_S)
    stages.done("undeployed")
    assert api.get_node(node.id).power_state == "power off"


def enrolled(api: Any, rack: World, server: Server) -> Any:
    """Make Ironic know a server."""
    node = api.create_node(
        name=server.name, driver="redfish", boot_interface="redfish-virtual-media", deploy_interface="direct",
        inspect_interface="agent", rescue_interface="agent",
        driver_info={
            "redfish_address": rack.bmcs.url,
            "redfish_username": USER, "redfish_password": rack.bmcs.password,
            "redfish_system_id": f"/redfish/v1/Systems/{server.uuid}",
            "redfish_verify_ca": str(rack.bmcs.certificate),
        },
        properties={
            "cpu_arch": "x86_64", "capabilities": "boot_mode:uefi", "root_device": {"name": "/dev/vda"},
        },
    )  # fmt: skip
    api.create_port(node_id=node.id, address=server.mac)
    return node


def config_drive(server: Server, key: Path, host_key: Path) -> dict[str, Any]:
    """Return what tells a server who it is: name, static address, host key, and whose key comes in."""
    login = key.with_suffix(".pub").read_text().strip()
    link = {"id": "port", "type": "phy", "ethernet_mac_address": server.mac}
    network = {"id": "rack", "type": "ipv4", "link": "port", "ip_address": server.address}
    user = {
        "ssh_keys": {
            "ed25519_private": host_key.read_text(),
            "ed25519_public": host_key.with_suffix(".pub").read_text(),
        },
        "disable_root": False,
        "ssh_authorized_keys": [login],
    }
    return {
        "meta_data": {"uuid": server.uuid, "hostname": server.name, "name": server.name},
        "network_data": {
            "links": [link],
            "networks": [{**network, "netmask": "255.255.255.0", "routes": []}],
            "services": [],
        },
        "user_data": "#cloud-config\n" + json.dumps(user),
    }


def waits_for(api: Any, identity: str, state: str) -> None:
    """Wait until Ironic says that a server is in a state."""
    until = time.monotonic() + STEP_S
    while time.monotonic() < until:
        node = api.get_node(identity)
        if node.provision_state == state:
            return
        assert "failed" not in node.provision_state, node.last_error
        time.sleep(2)
    raise AssertionError(f"it is {node.provision_state} and not {state} after {STEP_S:.0f} s")


def asked(server: Server, key: Path, known: Path, command: str) -> str:
    """Run a command on a server, as soon as it answers with the key that is known; return what it printed."""
    options = [
        f"UserKnownHostsFile={known}",
        "StrictHostKeyChecking=yes",
        "BatchMode=yes",
        "ConnectTimeout=10",
    ]
    ssh = ["ssh", "-F", "none", "-i", str(key), *(part for option in options for part in ("-o", option))]
    until = time.monotonic() + STEP_S
    while time.monotonic() < until:
        answer = subprocess.run(
            [*ssh, f"root@{server.address}", command], capture_output=True, text=True, check=False
        )
        assert "HOST IDENTIFICATION HAS CHANGED" not in answer.stderr, answer.stderr
        if answer.returncode != 255:
            return answer.stdout
        time.sleep(2)
    raise AssertionError(f"no answer of {server.name}: {answer.stderr}; its console: {server.console}")
