# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which host of a lab a virtual machine of its estate is, and which there are."""

from __future__ import annotations

import json
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from ironspan.lab import files
from ironspan.lab.errors import LabError
from ironspan.lab.layout import LabHost, Layout


def lab_host(layout: Layout, machine: dict[str, Any]) -> LabHost:
    """Return the host that a virtual machine is.

    Args:
        layout: The lab.
        machine: What a driver is told of a machine.

    Raises:
        LabError: Its address is none that a host on the Azure side may have.
    """
    site, name = layout.azure_site, str(machine["computer"])
    address = IPv4Address(machine["address"] or "0.0.0.0")
    taken = {site.controller, site.router, site.endpoint, *(one.address for one in layout.hosts)}
    if name in (one.name for one in layout.hosts):
        raise LabError(f"virtual machine {name!r}: the lab itself has a host of this name")
    if address not in site.network or address in taken:
        raise LabError(
            f"virtual machine {name!r}: the lab has no room for the address {address}; write addresses of "
            f"{site.network} that no host has into the estate"
        )
    number = int(address) & 0xFF  # short: an interface is called after it
    return LabHost(
        name,
        site,
        address,
        f"is{layout.index}-vm{number}",
        f"ironspan-{layout.name}-vm{number}",
        user=str(machine.get("user", "")),
        authorized_keys=tuple(map(str, machine.get("authorized_keys", ()))),
        disk=str(machine.get("disk", "")),
    )


def _list(lab: Path) -> Path:
    return lab / "machines.json"


def known(layout: Layout, lab: Path) -> list[LabHost]:
    """Return the virtual machines that are hosts of a lab, running or not.

    Args:
        layout: Of the lab.
        lab: Its folder.
    """
    try:
        listed = json.loads(_list(lab).read_text())
    except FileNotFoundError:
        return []
    return [lab_host(layout, about) for about in listed.values()]


def remember(lab: Path, name: str, machine: dict[str, Any] | None) -> None:
    """Write down what a machine is, or that there is none of this name any more.

    Args:
        lab: The lab's folder.
        name: Of the host.
        machine: What a driver is told of it.
    """
    path = _list(lab)
    listed = json.loads(path.read_text()) if path.exists() else {}
    listed.pop(name, None)
    more = {name: machine} if machine else {}
    files.write_atomic(path, json.dumps({**listed, **more}, indent=1) + "\n", 0o600)
