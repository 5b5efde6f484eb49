# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which processes of a host have a device open."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._system import paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import Host

MPS = "nvidia-cuda-mps"
"""Servers of MPS (the kernel keeps 15 characters of a name): they stay when their last client has ended."""


def holders(host: Host, devices: t.Sequence[str]) -> t.List[str]:
    """Return the processes that have one of some devices open, as ``NAME (PID)``."""
    found = []
    processes = host.path("/proc")
    for pid in sorted(filter(str.isdigit, os.listdir(processes)), key=int):
        try:
            folder = f"{processes}/{pid}/fd"
            if any(os.readlink(f"{folder}/{name}") in devices for name in os.listdir(folder)):
                found.append(f"{paths.text(f'{processes}/{pid}/comm').strip()} ({pid})")
        except OSError:
            continue  # It ended meanwhile.
    return [each for each in found if not each.startswith(MPS)]
