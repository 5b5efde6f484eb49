# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Applying what was planned, one resource after the other; what fails is undone with all that was done."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.compare import (
    UNKNOWN,
    Comparison,
    Seen,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.document import Document, Resource
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.errors import EngineError
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.transaction import Transaction
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import Change


def apply_all(transaction: Transaction, document: Document, plan: Seen) -> Seen:
    """Apply all of a document that differs.

    Args:
        transaction: open.
        document: what is wanted.
        plan: how the host differs from it.

    Returns:
        What was done.

    Raises:
        EngineError: something failed; everything is undone.
    """
    host, timings = plan.comparison.host, plan.comparison.timings
    host.planned.clear()
    done = Seen(Comparison(host, timings), {})
    for resource in document.resources:
        try:
            change = _fresh(resource, plan.comparison, done)
            if change is not None:
                done.changes[resource.id] = change
                started = time.perf_counter()
                transaction.apply(resource, change)
                timings[resource.id] += (time.perf_counter() - started) * 1000
        except Exception as error:
            raise transaction.undone(error, resource.id) from error
    return done


def _fresh(resource: Resource, plan: Comparison, done: Seen) -> t.Optional[Change]:
    """Return the change to apply: the planned one, or a new comparison if its requirements changed."""
    outcome = plan.outcomes[resource.id]
    comparison, waiting = done.comparison, done.comparison.waiting()
    if outcome.change is UNKNOWN or any(
        name in done.changes or (name in waiting and outcome.change) for name in resource.references
    ):
        comparison.host.forget_all_cached()
        outcome = comparison.compare(resource, ())
    comparison.outcomes[resource.id] = outcome
    if outcome.problem is not None:
        raise EngineError([outcome.problem])
    return outcome.change
