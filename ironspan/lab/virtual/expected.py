# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The file of expected servers for virtual ones (docs/bare-metal-inventory.md)."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from ironspan.lab.virtual.servers import LEAF, Server

GROUP = "user_virtual_servers"
"""The group of the inventory that they join."""
_SOLD_GB = 10**9


def path(folder: Path) -> Path:
    """Return where the file of the servers in a folder is."""
    return folder / "expected.csv"


def text(machines: Sequence[Server]) -> str:
    """Return the file."""
    rows = [_row(server) for server in machines]
    written = io.StringIO()
    table = csv.DictWriter(written, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return written.getvalue()


def _row(server: Server) -> dict[str, object]:
    return {
        "name": server.name,
        "bmc_address": server.bmc_address,
        "rack": server.rack.name,
        "position": server.number,
        "serial": server.serial,
        "group": GROUP,
        "memory_gib": server.memory_gib,
        "nic1_name": "management",
        "nic1_mac": server.mac,
        "nic1_switch": LEAF,
        "nic1_port": server.switch_port,
        "disk1_count": 1,
        "disk1_size_gb": round(server.disk_gib * (1 << 30) / _SOLD_GB),
    }
