# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a lab's inventory says of its virtual servers: before they are deployed, and of those that will be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ironspan.lab import keys
from ironspan.lab.layout import Layout
from ironspan.lab.virtual import rack, settings
from ironspan.lab.virtual.expected import GROUP

USER = "ironspan"
"""Who logs in to what is deployed, and becomes root."""
FOLDER = "bare-metal"
"""Below the lab's folder."""
_FIRST = 1


def site(layout: Layout, lab: Path) -> dict[str, Any]:
    """Return the site's variables with which `ironspan bare-metal` works in the lab.

    Raises:
        LabError: nobody built the images.
    """
    place = rack.of(layout)
    image = settings.images(place.mirror)["server-disk"]
    own = lab / FOLDER
    return {
        "site_bare_metal_cloud": "lab",
        "site_bare_metal_clouds": str(own / "ironic" / "clouds.yaml"),
        "site_bare_metal_node": {
            "driver": "redfish",
            "boot_interface": "redfish-virtual-media",
            "deploy_interface": "direct",
            "inspect_interface": "agent",
            "rescue_interface": "agent",
            "driver_info": {
                "redfish_address": "https://{bmc_address}",
                "redfish_auth_type": "basic",
                # What `ironspan bmc setup` makes the BMCs show.
                "redfish_verify_ca": f"{lab}/pki/authorities/bmc.crt",
            },
            "properties": {
                "cpu_arch": "x86_64",
                "capabilities": "boot_mode:uefi",
                "root_device": {"name": "/dev/vda"},
            },
        },
        "site_bare_metal_image": {"source": image.url, "sha256": image.sha256, "format": "raw"},
        "site_bare_metal_racks": {
            place.name: {
                "network": str(place.network),
                "first": str(place.server(_FIRST)),
                "gateway": str(place.gateway),
                "dns": [str(place.controller)],
            }
        },
        "site_bare_metal_account": {
            "user": USER,
            "authorized_keys": [keys.private_key(lab).with_suffix(".pub").read_text().strip()],
        },
        "site_ready_timeout_seconds": 3600,
        "site_bare_metal_known_hosts": str(own / "known_hosts"),
        "site_bare_metal_inventory": str(hosts(lab)),
    }


def hosts(lab: Path) -> Path:
    """Return the inventory file of servers that run, beside that of the lab's hosts."""
    return lab / "inventory" / "servers.yml"


def group(lab: Path) -> dict[str, dict[str, Any]]:
    """Return the variables of servers that were deployed, by the name of their group.

    What they have that the lab's hosts have not, a kernel of their own, is in ``inventories/lab/group_vars``.
    """
    ssh = "-F /dev/null -o GlobalKnownHostsFile=/dev/null -o IdentitiesOnly=yes"
    return {
        GROUP: {
            # Without the lab's own file of host keys: ssh takes the first that is named.
            "ansible_ssh_common_args": f"{ssh} -o UserKnownHostsFile={lab / FOLDER / 'known_hosts'}",
            # Emulated: a hundred times slower than the hosts beside them.
            "ansible_ssh_timeout": 120,
        }
    }
