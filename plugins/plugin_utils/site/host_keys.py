# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Files with public keys of hosts, which runs write: whether one that is there is such a file."""

from __future__ import annotations

import re
from pathlib import Path

_LINE = re.compile(r"|#.*|(@\S+\s+)?\S+\s+((sk-)?(ssh|ecdsa)-\S+|[0-9]+)\s+[A-Za-z0-9+/]+=*(\s.*)?")
"""sshd(8), SSH_KNOWN_HOSTS FILE FORMAT: marker, names, type, key, comment."""


def holds_others(path: Path) -> bool:
    """Tell whether a file has lines that are no public keys of hosts.

    A run writes the whole file, readable by everybody: a key, a list of accounts, an inventory are no place.

    Args:
        path: of a file that is there.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False  # Whoever runs the operation may well read it.
    return any(not _LINE.fullmatch(line.strip()) for line in lines)
