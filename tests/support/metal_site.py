# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A site whose servers are pretended ones of an Ironic of the lab, for playbooks about servers."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

from tests.support.small_plays import mirror_index

FAKE: dict[str, t.Any] = {"driver": "fake-hardware", "driver_info": {"address": "{bmc_address}"}}
IMAGE = {"source": "http://192.0.2.1/disk.raw", "sha256": "ab" * 32, "format": "raw"}
RACKS: dict[str, t.Any] = {
    "a": {"network": "10.30.1.0/24", "first": "10.30.1.11", "gateway": "10.30.1.1", "dns": ["10.30.1.2"]}
}
ACCOUNT = {"user": "ironspan", "authorized_keys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA== operator"]}


def site(folder: Path, **more: t.Any) -> Path:
    """Write the inventory of such a site, and return its folder.

    Args:
        folder: for it, and for what stands beside it.
        more: variables beside those that the site needs, or instead of them.
    """
    inventory = folder / "site"
    inventory.mkdir()
    (folder / "index.json").write_text(mirror_index())
    variables = {
        "site_name": "metal",
        "site_api_endpoint": "10.1.0.1:6443", "site_mirror_url": "http://10.2.0.2:8080",
        "site_pki_store": str(folder / "pki"),
        # What hosts get is not what this is about.
        "site_artifacts_index": str(folder / "index.json"),
        "site_bare_metal_cloud": "lab", "site_bare_metal_node": FAKE, "site_bare_metal_inspect": False,
        "site_bare_metal_image": IMAGE, "site_bare_metal_racks": RACKS, "site_bare_metal_account": ACCOUNT,
        "site_bare_metal_known_hosts": str(folder / "known_hosts"),
        "site_bare_metal_inventory": str(inventory / "servers.yml"),
        **more,
    }  # fmt: skip
    groups = {
        "azure": {"hosts": {"a1": {"site_address": "10.1.0.1", "ansible_connection": "local"}}},
        "etcd": {"hosts": {"a1": {}}}, "control_plane": {"hosts": {"a1": {}}},
    }  # fmt: skip
    (inventory / "hosts.yml").write_text(json.dumps({"all": {"vars": variables, "children": groups}}))
    return inventory
