# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Ranges of hosts, ``rack-[01:40]``: one line that stands for many hosts, some of them named singly too."""

from __future__ import annotations

from ansible.errors import AnsibleError
from ansible.plugins.inventory import detect_range, expand_hostname_range

MOST = 100_000
"""Hosts of one line; more is a typing mistake that fills the memory."""


def expanded(name: str) -> tuple[list[str], str]:
    """Return the hosts that a name of an inventory stands for, and what is wrong with it, "" if nothing is.

    Args:
        name: as it is written.
    """
    if "[" not in name or not detect_range(name):
        return [name], ""
    if _size(name) > MOST:
        return [], f"is a range of more than {MOST} hosts"
    try:
        hosts = [str(host) for host in expand_hostname_range(name)]
    except (AnsibleError, ValueError, TypeError) as error:
        return [], f"is no range of hosts ({' '.join(str(error).split())})"
    return hosts, "" if hosts else "is a range without hosts, as its end is before its beginning"


def _size(name: str) -> int:
    """Return about how many hosts there would be; 0 where the range is none."""
    size = 1
    for part in name.split("[")[1:]:
        bounds = part.partition("]")[0].split(":")
        if len(bounds) > 1 and bounds[0].isdecimal() and bounds[1].isdecimal():
            size *= max(int(bounds[1]) - int(bounds[0]) + 1, 0)
    return size
