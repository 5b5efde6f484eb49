# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Why a task failed, from whatever its result says."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Mapping

SAYING = ("msg", "reason", "censored", "module_stderr", "stderr", "exception", "module_stdout", "stdout")
"""Where a failed task says why, the best first."""
SAID = 2000
"""Characters of a text of which nobody knows how long it is."""


def reason_of(result: Mapping[str, t.Any], task: str) -> str:
    """Return why a task failed; never an empty text.

    Args:
        result: as it was reported.
        task: its name.
    """
    return _said(result) or f"the task '{task}' failed and said nothing else than {_rest(result)}"


def _said(result: Mapping[str, t.Any]) -> str:
    for name in SAYING:
        text = str(result.get(name) or "").strip()
        if text:
            # The last lines of what a program printed are those about its end.
            return text if name in SAYING[:3] else text[-SAID:]
    items = [item for item in result.get("results") or () if isinstance(item, dict) and item.get("failed")]
    return "\n".join(dict.fromkeys(filter(None, map(_said, items))))


def _rest(result: Mapping[str, t.Any]) -> str:
    """Return a result as it is, for a failure that nothing better is known of."""
    shown = {name: value for name, value in result.items() if not name.startswith("_")}
    return json.dumps(shown, default=str)[:SAID]
