# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Servers that run, in a real Ironic with its redfish driver, behind BMCs that take firmware."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import json
import threading
import typing as t
from collections.abc import Iterator, Sequence
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_api import (
    IronicApi,
    connected,
)

from ironspan.lab import ironic
from ironspan.lab.bmc.front import Front
from ironspan.lab.ironic import Ironic

SECTIONS: dict[str, dict[str, object]] = {
    "DEFAULT": {
        "enabled_hardware_types": "redfish",
        "enabled_boot_interfaces": "redfish-virtual-media",
        "enabled_deploy_interfaces": "direct",
        "enabled_inspect_interfaces": "no-inspect",
        "enabled_management_interfaces": "redfish",
        "enabled_power_interfaces": "redfish",
        "enabled_firmware_interfaces": "redfish,no-firmware",
        **{
            f"enabled_{name}_interfaces": f"no-{name}"
            for name in ("bios", "console", "raid", "rescue", "vendor")
        },
    },
    # As on a site, but for the times: a site's Ironic looks once a minute.
    "redfish": {
        "connection_attempts": 1,
        "server_side_retries": 1,
        "auth_type": "basic",
        "use_swift": "false",
        "firmware_update_status_interval": 1,
        "firmware_update_fail_interval": 1,
        "firmware_update_reboot_delay": 15,
        "firmware_update_bmc_version_check_interval": 1,
        "firmware_update_required_successes": 1,
        "firmware_update_validation_interval": 1,
    },
}


@contextlib.contextmanager
def running(folder: Path, fronts: Sequence[Front], names: Sequence[str]) -> Iterator[Ironic]:
    """Run an Ironic that has adopted a server behind each BMC.

    Args:
        folder: for its files.
        fronts: the BMCs.
        names: of the servers.
    """
    with ironic.running(folder, SECTIONS) as lab:
        api = connected("lab", str(lab.clouds))
        for number, (front, name) in enumerate(zip(fronts, names, strict=True), 1):
            _adopt(api, front, name, f"52:54:00:00:77:{number:02x}")
        yield lab


def _adopt(api: IronicApi, front: Front, name: str, mac: str) -> None:
    account = front.state.accounts["1"]
    info = {
        "redfish_address": f"https://{front.address}:{front.port}",
        "redfish_system_id": f"/redfish/v1/Systems/{front.server.identity}",
        "redfish_username": account.username,
        "redfish_password": account.password,
        "redfish_verify_ca": False,
    }
    body = {
        "driver": "redfish",
        "driver_info": info,
        "automated_clean": False,
        "properties": {"capabilities": "boot_mode:uefi", "cpu_arch": "x86_64"},
        "instance_info": {"image_source": "http://192.0.2.1/disk.raw", "image_type": "whole-disk"},
    }
    uuid = api.enrol(name, body, [mac])
    for verb in ("manage", "power_on", "adopt"):
        api.take(uuid, verb)
        node = api.settled(uuid, lambda what: None, 120)
    assert node.state == "active", node


def file_of(folder: Path, component: str, version: str) -> dict[str, t.Any]:
    """Write a file with firmware as the role ironic lays it, and return what a site says of it."""
    content = json.dumps({"component": component, "version": version}).encode()
    digest = hashlib.sha256(content).hexdigest()
    (folder / digest).mkdir(parents=True, exist_ok=True)
    (folder / digest / f"{component}.bin").write_bytes(content)
    return {"component": component, "version": version, "file": f"firmware/{component}.bin",
            "sha256": digest, "size": len(content)}  # fmt: skip


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve the files of a folder, to BMCs and to Ironic."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
