# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Processes of this machine: a number alone names none, for it is given again."""

from __future__ import annotations

from pathlib import Path


def started(pid: int) -> str:
    """Return when a process began, in clock ticks since boot; "" where there is none, or it has ended.

    A zombie has ended: in a container whose first process asks for nobody's exit status it stays.

    Args:
        pid: its number.
    """
    try:
        content = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # Fields 3 and 22 of proc(5), counted behind the name in brackets, which may hold anything.
    fields = content.rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 and fields[0] not in "ZX" else ""
