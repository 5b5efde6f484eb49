# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Whether a host is still as it was when the plan was made."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

Verdict = dict[str, t.Any]
_SHOWN = 10


def plan_verdict(planned: Mapping[str, t.Any], answer: Mapping[str, t.Any], digest: str) -> Verdict:
    """Judge a host against its plan; a verdict like those of the module.

    A host on which a run of this very plan was cut short may have less to do than planned, and nothing else:
    every resource that differs must be one that the plan names.

    Args:
        planned: the host's entry in the plan.
        answer: the assessment of now, against the document of the plan.
        digest: identity of the plan.
    """
    moved: list[str] | None = None
    if answer.get("plan") == digest:
        known = _state(planned)
        moved = sorted(
            name for name in _state(answer) if name not in known and name != "ironspan/transaction"
        )
    elif answer.get("fingerprint") != planned["fingerprint"]:
        before, after = _state(planned), _state(answer)
        moved = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        # Long texts are compared by the fingerprint only.
        moved = moved or sorted(before)
    ok = not moved
    return {
        "check": "plan",
        "ok": ok,
        "found": f"changed since the plan was made: {_names(moved or [])}" if not ok else "as planned",
        "wanted": "the state that the plan was made from",
        "remedy": "" if ok else "Make a new plan: ironspan plan.",
    }


def _state(answer: Mapping[str, t.Any]) -> dict[str, t.Any]:
    changes = {
        str(entry["resource"]): [entry["action"], entry["before"]] for entry in answer.get("changes") or ()
    }
    pending = {str(entry["resource"]): entry["needs"] for entry in answer.get("pending") or ()}
    return {**pending, **changes}


def _names(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
