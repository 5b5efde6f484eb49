# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A two-site world on one Linux machine: hosts, routers, a WAN between them.

Lab("default").up(azure=3, rack=2); Lab("default").down()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ironspan.lab.lab import Lab

__all__ = ["Lab"]


def __getattr__(name: str) -> Any:
    # Late, so that the WAN process, which lives in this package, does not carry all of it in memory.
    if name == "Lab":
        from ironspan.lab.lab import Lab

        return Lab
    raise AttributeError(name)
