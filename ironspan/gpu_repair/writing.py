# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A step as one change of the Node: memory, taints, cordon and request go together, so no kill parts them."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.cordon import ANNOTATION as CORDONED

from ironspan.gpu_repair import records
from ironspan.gpu_repair.model import (
    ACTION,
    GATE_STATES,
    PREFLIGHT_TAINT,
    RECORD,
    REPAIR_TAINT,
    State,
    Step,
)

TESTED = frozenset({State.JOINING, State.TESTING, State.RETEST})


def change(step: Step) -> dict[str, t.Any]:
    """Return the merge patch of a step, which is refused when the node is another by then.

    Args:
        step: one that writes a record.
    """
    node, record = step.node, step.record
    assert record is not None
    before = node.record
    annotations: dict[str, t.Any] = {RECORD: records.dumps(record)}
    if step.action is not None:
        annotations[ACTION] = json.dumps(step.action, separators=(",", ":"))
    spec: dict[str, t.Any] = {"taints": _taints(step)}
    if record.cordoned and not node.cordoned and not (before and before.cordoned):
        spec["unschedulable"] = True
        annotations[CORDONED] = records.moment(record.since)
    elif before and before.cordoned and not record.cordoned:
        # Uncordoned as it was cordoned: by a note of our own, and not where a person did it.
        spec["unschedulable"] = None
        annotations[CORDONED] = None
    return {
        "metadata": {"resourceVersion": node.version, "uid": node.uid, "annotations": annotations},
        "spec": spec,
    }


def _taints(step: Step) -> list[dict[str, t.Any]]:
    assert step.record is not None
    state = step.record.state
    ours = {PREFLIGHT_TAINT, REPAIR_TAINT}
    taints = [dict(taint) for taint in step.node.taints if taint.get("key") not in ours]
    passes = state is State.READY and step.node.state in TESTED
    if state in TESTED or (step.node.gated and not passes):
        taints.append({"key": PREFLIGHT_TAINT, "value": "pending", "effect": "NoSchedule"})
    if state not in GATE_STATES:
        taints.append({"key": REPAIR_TAINT, "value": str(state), "effect": "NoSchedule"})
    return taints
