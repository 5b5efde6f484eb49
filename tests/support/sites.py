# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A site as its page shows it: a member of etcd is down, a rack lacks nodes, a run goes on."""

from __future__ import annotations

from pathlib import Path

from ironspan.cli.outcome import Exit
from ironspan.pages.view import Rack, Server, View
from tests.support import runs

NOW = runs.STARTED + 40
_DAY = 86_400


def view(racks: int) -> View:
    """Return the site.

    Args:
        racks: how many it has, of 40 workers with eight GPUs each.
    """
    ended = [runs.recorded(Path("/nowhere"), 12).record(code) for code in (Exit.OK, Exit.FAILED, Exit.HOSTS)]
    wrong = {"az-3": "at 10.0.0.3 does not answer: timed out"}
    return View(
        "north",
        "api.north.example:6443",
        NOW,
        runs.verified(12),
        servers=[
            Server(name, "azure", ("control plane", "etcd"), name not in wrong, wrong.get(name, ""))
            for name in ("az-1", "az-2", "az-3")
        ],
        racks=[
            Rack(f"rack-{number:02}", "on_prem", 40, 37 if number == 4 else 40, 296 if number == 4 else 320)
            for number in range(1, racks + 1)
        ],
        authorities={
            "kubernetes": NOW + 3285 * _DAY,
            "etcd": NOW + 20.5 * _DAY,
            "front-proxy": NOW + 3000 * _DAY,
        },
        backups=[
            {"store": "https://north.blob.example/etcd", "newest": NOW - 900},
            {"store": "/srv/backup", "newest": NOW - 200_000},
        ],
        backups_asked=NOW - 3600,
        running=[runs.recorded(Path("/nowhere"), 12).live()],
        runs=ended,
    )
