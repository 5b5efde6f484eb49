# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What an inventory says about a lab's estate: the variables `azure_*` with which everything there is made.

The virtual network is the lab's Azure network. What the lab itself has there, but for the machine's .1, is
in the subnet of the gateway, of which no estate of a lab has one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ironspan.lab import keys
from ironspan.lab.azure import settings, variables
from ironspan.lab.layout import Layout

#: Port of the API endpoint, which an estate's load balancer passes on unchanged.
API_PORT = 6443
#: What the lab's base image stands for.
_IMAGE = {"version": "24.04.202610140"}
_REGION = "westeurope"


def machines(members: int) -> list[dict[str, Any]]:
    """Return the sets of machines of an estate.

    Args:
        members: Of etcd; a single one is on the machine of the control plane.
    """
    if members == 1:
        return [{"name": "az", "groups": ["etcd", "control_plane"]}]
    return [{"name": "etcd", "count": members}, {"name": "control-plane", "groups": ["control_plane"]}]


def known_hosts(lab: Path) -> Path:
    """The file into which `ironspan azure` has the machines' host keys written."""
    return keys.folder(lab) / "known_hosts_azure"


def account(layout: Layout) -> str:
    """Return the name of the account that backups of etcd go to."""
    return f"{re.sub('[^a-z0-9]', '', layout.name.lower())[:14]}etcdbackup"


def site(layout: Layout, lab: Path, etcd_backup: bool) -> dict[str, Any]:
    """Return the variables of an estate.

    Args:
        layout: The lab.
        lab: Its folder.
        etcd_backup: etcd is backed up into an account that the estate makes, as the identity of each member.
    """
    network = layout.azure_site.network
    control, rest = network.subnets(prefixlen_diff=1)
    nodes, services = rest.subnets(prefixlen_diff=1)
    endpoints, gateway = services.subnets(prefixlen_diff=1)
    subnets = {"control": control, "nodes": nodes, "endpoints": endpoints, "gateway": gateway}
    public = keys.private_key(lab).with_suffix(".pub").read_text().strip()
    backup = variables.stores(account(layout), {"kind": "managed_identity"}) if etcd_backup else {}
    return {
        "azure_subscription": settings.SUBSCRIPTION,
        "azure_tenant": settings.TENANT,
        "azure_region": _REGION,
        "azure_address_space": str(network),
        "azure_subnets": {name: str(one) for name, one in subnets.items()},
        "azure_rack_networks": [str(layout.rack_site.network)],
        "azure_administrator_networks": [f"{layout.rack_site.controller}/32"],
        "azure_authorized_keys": [public],
        "azure_known_hosts": str(known_hosts(lab)),
        "azure_image": _IMAGE,
        "azure_machines": machines(layout.estate),
        "azure_backup": (
            {"container": settings.CONTAINER, "account": account(layout), "retention_days": 1}
            if etcd_backup
            else {"container": ""}
        ),
        **backup,
        "azure_management": variables.management(layout, lab),
    }
