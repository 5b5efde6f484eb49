# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the kernel says of processes that NVML names: whether they are there, and which are MPS servers.

A server of MPS (Multi-Process Service) stays on its GPUs when its last client has ended, and computes
nothing by itself, so it is no work. Known is that of the unit which the role nvidia_mps installs, by its
control group: no process of a pod gets into that, whatever it calls itself.
"""

from __future__ import annotations

from pathlib import Path

MPS_UNIT = "ironspan-nvidia-mps.service"
PROC = Path("/proc")


def serves(pid: int) -> bool:
    """Say whether a process is an MPS server of this host's own daemon."""
    try:
        groups = (PROC / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    return any(group.endswith(f"/{MPS_UNIT}") for group in groups)


def there(pid: int) -> bool:
    """Say whether a process has not ended, and is of this host: NVML names those of a host around it too."""
    return (PROC / str(pid)).exists()
