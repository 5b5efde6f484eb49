# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A host remembers which plan it was last changed by."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.canonical import canonical_json

PLAN, OTHER = "a" * 64, "b" * 64


def file(content: str) -> dict[str, t.Any]:
    return {"kind": "file", "id": "motd", "path": "/motd", "content": content}


def assessed(sandbox: t.Any, content: str = "one") -> str:
    return str(sandbox.run(file(content), mode="assess")["plan"])


def test_the_last_plan_is_remembered(sandbox: t.Any) -> None:
    assert assessed(sandbox) == ""
    sandbox.changed(file("one"), plan=PLAN)
    assert assessed(sandbox) == PLAN
    # Nothing to do is no change by another plan.
    sandbox.changed(file("one"), plan=OTHER)
    assert assessed(sandbox) == PLAN
    sandbox.changed(file("two"))
    assert assessed(sandbox) == "", "a change without a plan ends what is known of one"


def test_a_plan_that_failed_is_not_remembered(sandbox: t.Any) -> None:
    sandbox.changed(file("one"), plan=PLAN)
    broken = {"kind": "file", "id": "x", "path": "/x", "content": "", "owner": "nobody-knows-them"}
    assert sandbox.run(file("two"), broken, plan=OTHER)["failed"]
    assert assessed(sandbox) == PLAN


def test_a_killed_run_tells_its_plan(sandbox: t.Any) -> None:
    sandbox.changed(file("one"), plan=PLAN)
    records = [
        {"step": "begin", "digest": "d", "serial": 2, "time": 1, "plan": PLAN},
        {"step": "resume", "digest": "d", "time": 2, "plan": OTHER},
    ]
    sandbox.put("var/lib/ironspan/journal/open.jsonl", "".join(f"{canonical_json(r)}\n" for r in records))
    assert assessed(sandbox) == OTHER
    sandbox.changed(file("one"), plan=OTHER)
    assert json.loads(sandbox.read("var/lib/ironspan/state.json"))["plan"] == OTHER
