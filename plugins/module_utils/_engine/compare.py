# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Comparing resources with the host: what differs, what waits for an input, what cannot be."""

from __future__ import annotations

import errno
import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.document import Document, Resource
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.errors import EngineError, Problem
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.host import LocalHost
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Change,
    Pending,
    ResourceError,
)

UNKNOWN = Change("update", {}, {}, "details are known only after what it requires has changed")
"""Stands for a change that cannot be described yet; it is compared again before it is applied."""


class Outcome(t.NamedTuple):
    """What comparing a resource gave: at most one of a change, a missing input, and a problem."""

    change: t.Optional[Change] = None
    needs: str = ""
    problem: t.Optional[Problem] = None


class Comparison:
    """The outcomes of one pass over the document, in its order."""

    def __init__(self, host: LocalHost, timings: t.Dict[str, float]) -> None:
        self.host = host
        self.timings = timings
        self.outcomes: t.Dict[str, Outcome] = {}

    def compare(self, resource: Resource, changing: t.Collection[str]) -> Outcome:
        """Compare one resource and keep the outcome.

        Args:
            resource: the resource; what it requires has been compared before.
            changing: resources that change (or would) in this run. What cannot be compared because of them
                counts as a change whose details are not known yet.
        """
        started = time.perf_counter()
        outcome = self._outcome(resource, changing)
        self.timings[resource.id] = (
            self.timings.get(resource.id, 0.0) + (time.perf_counter() - started) * 1000
        )
        self.outcomes[resource.id] = outcome
        return outcome

    def _outcome(self, resource: Resource, changing: t.Collection[str]) -> Outcome:
        self.host.current = resource.id
        blocked = self._blocked(resource)
        try:
            change = resource.kind.compare(resource.spec, self.host)
        except Pending as pending:
            return Outcome(needs=pending.needs)
        except (ResourceError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            if blocked:
                return Outcome(needs=blocked)
            if any(name in changing for name in resource.references):
                return Outcome(UNKNOWN)
            return Outcome(problem=problem_of(resource.id, error))
        if change is None:
            return Outcome()
        # A resource waits with what it requires, but only if there is something to do.
        return Outcome(needs=blocked) if blocked else Outcome(change)

    def _blocked(self, resource: Resource) -> str:
        for name in resource.references:
            if name in self.outcomes and self.outcomes[name].needs:
                return self.outcomes[name].needs
        return ""

    def waiting(self) -> t.Dict[str, str]:
        """Return the resources that wait for an input, and for which."""
        return {name: outcome.needs for name, outcome in self.outcomes.items() if outcome.needs}


class Seen(t.NamedTuple):
    """A pass over the document: what each resource was found to be, and what changes (or did)."""

    comparison: Comparison
    changes: t.Dict[str, Change]


def compare_all(document: Document, host: LocalHost, timings: t.Dict[str, float]) -> Comparison:
    """Compare every resource, as if those before it had been applied.

    Raises:
        EngineError: with every resource that cannot be compared.
    """
    comparison = Comparison(host, timings)
    host.planned.clear()
    for resource in document.resources:
        if comparison.compare(resource, host.planned).change is not None:
            host.planned.add(resource.id)
    problems = [outcome.problem for outcome in comparison.outcomes.values() if outcome.problem is not None]
    if problems:
        raise EngineError(problems)
    return comparison


_REMEDIES = {
    errno.ENOSPC: "Make room on this file system (df -h, df -i), and run again.",
    errno.EDQUOT: "Raise the quota or make room, and run again.",
    errno.EROFS: "It is mounted read-only: look for disk errors (dmesg), mount it writable, and run again.",
    errno.EIO: "The disk reports an error (dmesg): replace it, or the host.",
}


def problem_of(name: str, error: BaseException) -> Problem:
    """Describe an exception that a kind raised."""
    if isinstance(error, ResourceError):
        return Problem(name, error.message, error.remedy)
    if isinstance(error, Pending):
        return Problem(name, f"needs {error.needs}, which this run did not carry")
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        remedy = getattr(error, "remedy", "") or _REMEDIES.get(error.errno or 0, "")
        return Problem(name, f"{where}{error.strerror or error}", remedy)
    return Problem(
        name, f"{type(error).__name__}: {error}", "This is a defect of the resource kind: report it."
    )
