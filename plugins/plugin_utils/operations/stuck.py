# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What got stuck in this run: wave after wave adds to it, and the end of the run tells all of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

_FILE = "stuck.json"
Reasons = dict[str, list[str]]


def stuck_in(folder: Path) -> Reasons:
    """Return the hosts that got stuck, with the reasons.

    Args:
        folder: the private folder of the run.
    """
    try:
        found = json.loads((folder / _FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return {str(host): [str(reason) for reason in reasons] for host, reasons in found.items()}


def add_stuck(folder: Path, more: Mapping[str, Sequence[str]]) -> Reasons:
    """Remember more hosts that got stuck; return all of them."""
    found = {**stuck_in(folder), **{host: list(reasons) for host, reasons in more.items()}}
    if more:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / _FILE).write_text(json.dumps(found), encoding="utf-8")
    return found


def stuck_text(stuck: Mapping[str, Sequence[str]]) -> str:
    """Return one line a reason, a host's reasons together."""
    return "\n".join(f"{host}: {reason}" for host, reasons in stuck.items() for reason in reasons)
