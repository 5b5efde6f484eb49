# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Errors of the engine itself; a kind's own error is ``types.ResourceError``."""

from __future__ import annotations

import typing as t


class Problem(t.NamedTuple):
    """One thing that is wrong: with which resource ("" for the whole document), what, and what helps."""

    resource: str
    message: str
    remedy: str = ""


class EngineError(Exception):
    """A run cannot go on.

    Args:
        problems: all that was found, the first one being the cause.
        told: what the result of the run says beside them.
    """

    def __init__(self, problems: t.Sequence[Problem], told: t.Optional[t.Mapping[str, t.Any]] = None) -> None:
        self.problems = list(problems)
        self.told = dict(told or {})
        super().__init__(self.text())

    def text(self) -> str:
        """Return all problems as sentences."""
        return "; ".join(
            f"{problem.resource}: {problem.message}" if problem.resource else problem.message
            for problem in self.problems
        )
