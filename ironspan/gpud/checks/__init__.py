# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The checks: functions over what NVML and the host said, now and before. None of them asks anybody.

A check is named as in docs/gpu-health.md, has limits that a site may change, and can be switched off.
"""

from __future__ import annotations

from ironspan.gpud.checks import links, memory, paths, presence, software, state
from ironspan.gpud.checks.base import Check

_PARTS = (presence, memory, state, links, software, paths)


def table() -> tuple[Check, ...]:
    """Return all checks, in the order of their names."""
    return tuple(sorted((check for part in _PARTS for check in part.CHECKS), key=lambda check: check.name))
