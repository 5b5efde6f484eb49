# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Room for the hosts' inotify instances.

The hosts' programs run as the machine's root and share its allowance, 128 in most kernels' default. A
control plane's host uses about 20 (six of its systemd, five of its kubelet), so that two small labs exceed
it, and a kubelet without one ends. `up` raises the allowance, the last `down` gives the former one back.
"""

from __future__ import annotations

from pathlib import Path

from ironspan.lab import files, state
from ironspan.lab.layout import state_root

SETTING = Path("/proc/sys/fs/inotify/max_user_instances")
ENOUGH = 1024


def _former() -> Path:
    return state_root() / ".inotify-instances"


def ensure() -> bool:
    """Raise the allowance where it is too small; return whether it was raised."""
    with files.locked(state_root() / ".index.lock"):
        current = int(SETTING.read_text())
        if current >= ENOUGH:
            return False
        # Written before the change, so that the way back is known whenever this is killed.
        if not _former().exists():
            files.write_atomic(_former(), f"{current}\n", 0o600)
        SETTING.write_text(f"{ENOUGH}\n")
        return True


def restore() -> None:
    """Give the machine its own allowance back once no lab is left, unless somebody changed it meanwhile."""
    if not _former().exists():
        return
    with files.locked(state_root() / ".index.lock"):
        if state.all_labs() or not _former().exists():
            return
        if int(SETTING.read_text()) == ENOUGH:
            SETTING.write_text(_former().read_text())
        _former().unlink()
