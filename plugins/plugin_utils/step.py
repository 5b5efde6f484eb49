# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""One thing that an operation does, as people read and approve it."""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import PlanError

Content = dict[str, t.Any]


class OperationError(PlanError):
    """An operation is refused: nothing was changed."""


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One thing that an operation does.

    Args:
        action: what kind of thing, for programs: ``drain``, ``etcd-promote``, ...
        target: the host, empty for the whole cluster.
        what: the same for people, one clause without a full stop.
        arithmetic: why it is safe, in numbers (a quorum before and after), empty when nothing is counted.
        disruption: what users notice, empty for nothing.
        seconds: how long it takes, an estimate.
        destructive: data or a member is gone afterwards, so it needs consent.
    """

    action: str
    target: str
    what: str
    arithmetic: str = ""
    disruption: str = ""
    seconds: int = 0
    destructive: bool = False

    def as_dict(self) -> Content:
        """Return it as the plan file has it."""
        return dataclasses.asdict(self)


def unplanned(
    steps: Sequence[Step], planned: Sequence[Content], *, hosts_in_any_order: bool = False
) -> list[Step]:
    """Return the steps that a plan does not have, or has as such that can be undone although they cannot.

    A run that was cut short has done the first of them, so steps may be missing; those that are left must
    come in the order of the plan.

    Args:
        steps: what has to be done now.
        planned: the steps of the plan.
        hosts_in_any_order: only the steps of each host must keep their order: which hosts come first
            depends on which are out of service now, and a run that was cut short leaves some so.
    """
    queues: dict[str, t.Iterator[Content]] = {}
    for target in {str(entry["target"]) for entry in planned}:
        queues[target] = iter([entry for entry in planned if entry["target"] == target])
    whole = iter(planned)
    return [
        step
        for step in steps
        if not any(
            (entry["action"], entry["target"]) == (step.action, step.target)
            and (entry["destructive"] or not step.destructive)
            for entry in (queues.get(step.target, ()) if hosts_in_any_order else whole)
        )
    ]


def without_consent(steps: Sequence[Step], allowed: bool) -> list[Step]:
    """Return the steps that need a consent which was not given."""
    return [] if allowed else [step for step in steps if step.destructive]
