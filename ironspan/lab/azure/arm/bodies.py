# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Bodies of requests: merged, and without what is sent and never kept."""

from __future__ import annotations

import copy
from typing import Any

_SECRET = ("sharedKey", "adminPassword")


def merged(before: Any, changes: Any) -> Any:
    """Return JSON with the changes of a merge patch (RFC 7396)."""
    if not isinstance(before, dict) or not isinstance(changes, dict):
        return copy.deepcopy(changes)
    found = {name: one for name, one in copy.deepcopy(before).items() if changes.get(name, "") is not None}
    for name, one in changes.items():
        if one is not None:
            found[name] = merged(found.get(name), one)
    return found


def without_secrets(value: Any) -> Any:
    """Return JSON without passwords and keys."""
    if isinstance(value, dict):
        return {name: without_secrets(one) for name, one in value.items() if name not in _SECRET}
    return [without_secrets(one) for one in value] if isinstance(value, list) else value
