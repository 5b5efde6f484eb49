# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Plans that were applied from here and whose run did not end well: can they still be resumed?"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.findings import (
    NOTICE,
    PROBLEM,
    Content,
    Evidence,
    Finding,
    duration,
    names,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations import SITE


def resumable(evidence: Evidence) -> list[Content]:
    """Return the open plans that a run would not refuse."""
    return [
        plan
        for plan in evidence.controller.open_plans
        if evidence.now < plan["expires"] and not moved(evidence, plan)
    ]


def moved(evidence: Evidence, plan: Content) -> list[str]:
    """Return the hosts that other runs, or people, have changed since a plan was made.

    What converge's comparison with a plan refuses (plan/moved.py), as far as it can be told from a comparison
    with the inventory. Where the inventory wants something else by now, a new plan is right either way.

    Args:
        evidence: with the hosts' answers; one that gave none has not moved.
        plan: with the digest and the fingerprint of each host's document.
    """
    answers = dict(evidence.answers())
    found = []
    for name, planned in (plan.get("hosts") or {}).items():
        now = answers[name]["drift"] if name in answers else {}
        if "fingerprint" not in now or now.get("plan") == plan["digest"]:
            continue
        if (now["digest"], now["fingerprint"]) != (planned["digest"], planned["fingerprint"]):
            found.append(name)
    return found


def plans(evidence: Evidence) -> Iterator[Finding]:
    """Applied plans whose run did not end well."""
    for plan in evidence.controller.open_plans:
        if evidence.controller.lock_holder:
            continue
        age = duration(max(0.0, evidence.now - plan["begun"]))
        what = f"the plan {plan['digest'][:12]} was begun {age} ago and not finished"
        again = f"{_planning(plan)}; if it still has something to do, apply the new one"
        others = moved(evidence, plan)
        if evidence.now >= plan["expires"]:
            yield Finding(NOTICE, f"{what}; it has expired", again)
        elif others:
            # What differs on hosts is another check's. This plan is of the past, whatever became of it.
            yield Finding(NOTICE, f"{what}; it is out of date, for {names(others)} changed since", again)
        else:
            yield Finding(PROBLEM, what, f"ironspan apply {shlex.quote(plan['file'])}; it resumes")


def _planning(plan: Content) -> str:
    """Return the command that makes a plan of the same."""
    operation, arguments = plan.get("operation", SITE), plan.get("arguments")
    words = ["ironspan", "plan", *([operation] if operation != SITE else [])]
    return shlex.join([*words, *(["-e", json.dumps(arguments)] if arguments else [])])
