# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""That a log's revisions follow on each other: checked by its writer and by its readers."""

from __future__ import annotations

import dataclasses

from ironspan.backup.errors import ChainError
from ironspan.backup.records import Coalesced, Progress, Record, Revision
from ironspan.program.errors import ProgramError


@dataclasses.dataclass
class Place:
    """Where a sequence of records is."""

    revision: int
    """The last one that is complete."""
    partial: bool = False
    """Whether the next one has begun."""

    def follow(self, record: Record) -> None:
        """Take a record's revision. Raises ChainError or ProgramError when it is not the next one."""
        match record:
            case Revision(revision=revision, more=more):
                self._next(revision)
                self.revision = self.revision if more else revision
                self.partial = more
            case Coalesced(revision=revision):
                self._next(revision)
                if self.partial:
                    raise ProgramError(f"Revision {revision} has parts of two kinds.")
                self.revision = revision
            case Progress(revision=revision) if revision > self.revision:
                raise self._gap(revision)

    def _next(self, revision: int) -> None:
        if revision > self.revision + 1:
            raise self._gap(revision - 1)
        if revision <= self.revision:
            raise ProgramError(f"Revision {revision} is in the log already, which is at {self.revision}.")

    def _gap(self, last: int) -> ChainError:
        first = self.revision + 1
        return ChainError(
            f"Revisions {first} to {last} are missing.", "Take a full snapshot.", gap=(first, last)
        )
