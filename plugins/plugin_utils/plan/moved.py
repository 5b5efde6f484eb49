# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Whether a host is as it was when the plan was made, and differs in nothing that the plan leaves out."""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.texts import texts_of

Verdict = dict[str, t.Any]
_SHOWN = 10
_TRANSACTION = "ironspan/transaction"


def plan_verdict(planned: Mapping[str, t.Any], answer: Mapping[str, t.Any], digest: str) -> Verdict:
    """Judge a host against its plan; a verdict like those of the module.

    What would be done now must be among what the plan lists, each with the same state before, the same
    state after and the same text: the lists are what people read and signed. Less to do is no reason to
    refuse: steps of an operation bring other hosts nearer to their documents. Once kube-proxy is upgraded,
    for example, every kubelet has fetched its image. On a host that a run of this very plan has changed
    already, states may be any on the way, so there only the names count.

    Args:
        planned: the host's entry in the plan.
        answer: the assessment of now, against the document of the plan, with diffs.
        digest: identity of the plan.
    """
    before, now = _state(planned), _state(answer)
    moved: list[str] = []
    if answer.get("plan") == digest:
        moved = sorted(name for name in now if name not in before and name != _TRANSACTION)
    elif any(name not in before or not _is_part(state, before[name]) for name, state in now.items()):
        moved = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    elif answer.get("fingerprint") != planned["fingerprint"]:
        # Nearer to its document, or a text that is too long to be shown is another one now.
        moved = [] if now != before else sorted(before)
    return {
        "check": "plan",
        "ok": not moved,
        "found": f"changed since the plan was made: {_names(moved)}" if moved else "as planned",
        "wanted": "the state that the plan was made from, and no other changes than it lists",
        "remedy": "Make a new plan: ironspan plan." if moved else "",
    }


def kinds_verdict(
    document: Mapping[str, t.Any], answer: Mapping[str, t.Any], free: Collection[str]
) -> Verdict:
    """Judge whether a plan that too few people approved stays within the kinds that need no approval.

    Args:
        document: the host's, whose resources have kinds: what the host says of them does not count.
        answer: the assessment of now.
        free: kinds that need no approval.
    """
    kinds = {str(resource["id"]): str(resource["kind"]) for resource in document["resources"]}
    found = [
        f"{name} ({kinds.get(name, 'unknown')})"
        for name in sorted(_state(answer))
        if name != _TRANSACTION and kinds.get(name) not in free
    ]
    return {
        "check": "approval",
        "ok": not found,
        "found": f"not approved, and this differs: {_names(found)}" if found else "needs no approval",
        "wanted": f"changes of these kinds only: {', '.join(sorted(free)) or '(none)'}",
        "remedy": "Make a new plan, and let it be approved." if found else "",
    }


def _state(answer: Mapping[str, t.Any]) -> dict[str, t.Any]:
    texts = texts_of(answer.get("diff") or ())
    changes = {
        str(entry["resource"]): [
            entry["kind"],
            entry["action"],
            entry["before"],
            entry["after"],
            entry.get("text") or texts.get(str(entry["resource"])),
        ]
        for entry in answer.get("changes") or ()
    }
    pending = {str(entry["resource"]): entry["needs"] for entry in answer.get("pending") or ()}
    return {**pending, **changes}


def _is_part(now: t.Any, planned: t.Any) -> bool:
    """Tell whether a change is the planned one, or what is left of it when some values hold already."""
    if now == planned:
        return True
    if not (isinstance(now, list) and isinstance(planned, list)):
        return False
    (kind, action, *states, text), (planned_kind, planned_action, *planned_states, planned_text) = (
        now,
        planned,
    )
    return (
        kind == planned_kind
        and (action == planned_action or (action, planned_action) == ("update", "create"))
        and text is planned_text is None
        and all(isinstance(state, dict) for state in (*states, *planned_states))
        and bool(states[1])
        and all(state.items() <= whole.items() for state, whole in zip(states, planned_states, strict=True))
    )


def _names(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
