# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Where the mirror's index is when nobody says so, and its errors in the form of problems."""

from __future__ import annotations

import os
from pathlib import Path


def default_index_path() -> Path:
    """Return where ``ironspan artifacts`` writes the index: below XDG_CACHE_HOME."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    return Path(cache) / "ironspan" / "mirror" / "index.json"


def message_and_remedy(error: Exception) -> tuple[str, str]:
    """Split an index error, whose last clause is the command that helps."""
    message, separator, remedy = str(error).rpartition("; ")
    return (message, remedy) if separator else (remedy, "run `ironspan artifacts build`")
