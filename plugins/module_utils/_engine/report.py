# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a run tells: changes, diffs in Ansible's form, and the fingerprint of what was seen."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.canonical import digest
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.document import Document, Resource
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.errors import EngineError, Problem
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import Change, State

LARGEST_DIFF_BYTES = 100_000
"""Longer texts are not shown as a diff, only their digests are."""


INTERRUPTED = {
    "resource": "ironspan/transaction",
    "kind": "transaction",
    "action": "finish",
    "before": {"state": "interrupted"},
    "after": {"state": "finished"},
    "reason": "an earlier run was killed in the middle",
}
"""Listed among the changes when a killed run's transaction is there to be finished or undone."""


def change_entry(resource: Resource, change: Change) -> t.Dict[str, t.Any]:
    """Return one entry of the result's ``changes``; whole texts are left to the diff."""
    return {
        "resource": resource.id,
        "kind": resource.kind.name,
        "action": change.action,
        "before": _attributes(change.before),
        "after": _attributes(change.after),
        "reason": change.reason,
    }


def diff_entries(resource: Resource, change: Change) -> t.List[t.Dict[str, str]]:
    """Return one or two entries of Ansible's ``diff``: the text that differs, and the attributes that do."""
    subject = resource.spec.get("path") or resource.spec.get("name") or resource.id
    header = f"{subject} ({resource.id})"
    entries = []
    before, after = _attributes(change.before), _attributes(change.after)
    if "text" in change.before or "text" in change.after:
        old, new = change.before.get("text") or "", change.after.get("text") or ""
        if max(len(old), len(new)) <= LARGEST_DIFF_BYTES:
            entries.append({"before_header": header, "after_header": header, "before": old, "after": new})
            # The digests say nothing that the text does not.
            before.pop("sha256", None)
            after.pop("sha256", None)
    if before != after or not entries:
        # A service that restarts runs before and after it: Ansible would show two equal sides as nothing.
        silent = f"{change.action}: {change.reason}\n" if before == after else ""
        entries.append(
            {
                "before_header": header,
                "after_header": f"{header}: {change.action}"
                + (f", {change.reason}" if change.reason else ""),
                "before": _lines(before),
                "after": _lines(after) + silent,
            }
        )
    return entries


def fingerprint(document: Document, differing: t.Mapping[str, Change], waiting: t.Mapping[str, str]) -> str:
    """Return the SHA-256 of the observed state.

    What matches is described by its specification, what differs by its state before the change; so the
    fingerprint moves whenever anything that the document describes moves on the host.

    Args:
        document: what was compared.
        differing: resource id -> the change it needs.
        waiting: resource id -> the input it waits for.
    """
    observed: t.Dict[str, t.Any] = {}
    for resource in document.resources:
        change = differing.get(resource.id)
        observed[resource.id] = [
            resource.kind.name,
            digest(resource.spec),
            waiting.get(resource.id) if change is None else [change.action, change.before],
        ]
    return digest(observed)


def _attributes(state: State) -> State:
    return {key: value for key, value in state.items() if key != "text"}


def _lines(state: State) -> str:
    return "".join(f"{key}: {json.dumps(state[key], sort_keys=True)}\n" for key in sorted(state))


def failed(told: t.Mapping[str, t.Any], problems: t.Sequence[Problem]) -> t.Dict[str, t.Any]:
    """Return the result of a failed run: what is known nevertheless, and the problems, the cause first."""
    first = problems[0]
    return {
        "rolled_back": [],
        **told,
        "failed": True,
        "msg": EngineError(problems).text() + (f". {first.remedy}" if first.remedy else ""),
        "failed_resource": first.resource,
        "remedy": first.remedy,
        "problems": [problem._asdict() for problem in problems],
    }
