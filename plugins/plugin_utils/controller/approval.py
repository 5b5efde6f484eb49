# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Who launched a workflow, and who approved it: nobody does both."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

Content = Mapping[str, t.Any]


def fault_of(workflow_job: Content, approvals: Sequence[Content]) -> str:
    """Return why a workflow must not go on; empty when it may.

    Args:
        workflow_job: as the controller's API has it.
        approvals: its approvals, as the API has them; those that nobody has decided yet do not count.
    """
    launcher = _person(workflow_job, "created_by")
    decided = [entry for entry in approvals if entry.get("status") == "successful"]
    if not decided:
        return "no approval of this workflow has been given"
    if not launcher:
        return "the controller does not say who launched this workflow"
    for entry in decided:
        approver = _person(entry, "approved_or_denied_by")
        if not approver:
            return f"the controller does not say who gave the approval {entry.get('name')!r}"
        if approver == launcher:
            return f"{approver[1]} launched this workflow and gave the approval {entry.get('name')!r}"
    return ""


def _person(entry: Content, field: str) -> tuple[int, str] | None:
    found = (entry.get("summary_fields") or {}).get(field) or {}
    number = found.get("id")
    return (int(number), str(found.get("username", ""))) if number else None
