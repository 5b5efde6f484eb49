# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Joins a watch's responses to transactions, without ever holding a large one whole."""

from __future__ import annotations

from ironspan.backup.errors import ChainError
from ironspan.backup.records import Event, Revision
from ironspan.etcd import rpc_pb2 as rpc


class Gap(ChainError):
    """Revisions that the watch can no longer give: a full snapshot has to be taken.

    Attributes:
        gap: first and last revision that are lost.
        resume: the first one that etcd still has.
    """

    def __init__(self, first: int, resume: int, why: str) -> None:
        self.resume = resume
        last = max(first, resume - 1)
        super().__init__(
            f"Revisions {first} to {last} are lost to the log: {why}",
            "A full snapshot closes the gap; points between cannot be restored.",
            gap=(first, last),
        )


class Grouper:
    """Makes ``Revision`` records of watch responses; one thread.

    etcd never splits a transaction over two responses, but for the fragments of a large response. The end
    of a fragment is held until it is known whether the transaction goes on; so what is in memory is at most
    two fragments (about 1.5 MiB each). A part that is not the transaction's last says ``more``.

    Args:
        next_revision: the first revision to come.
    """

    def __init__(self, next_revision: int) -> None:
        self.next = next_revision
        """The revision to ask etcd for when the watch has to start over."""
        self._open = False
        self._events: list[Event] = []
        self._given = 0
        self._skip = 0

    def restart(self) -> None:
        """Forget what was held: another watch, from ``next``, will give it again."""
        self._open = False
        self._events = []
        self._skip = self._given

    def feed(self, response: rpc.WatchResponse, time_ms: int) -> list[Revision]:
        """Return the records that a response completes.

        Args:
            response: the next one of the watch.
            time_ms: when it came, milliseconds since 1970.

        Raises:
            Gap: a revision is missing; must not happen, and would be silent loss.
        """
        found: list[Revision] = []
        newest = response.header.revision
        for number, event in enumerate(response.events):
            kv = event.kv
            revision = kv.mod_revision
            if revision != self.next:
                if self._open and revision == self.next + 1:
                    found.append(self._end(time_ms, newest))
                else:
                    raise Gap(self.next, revision, f"the watch went from {self.next - 1} to {revision}.")
            if not self._open:
                self._open = True
            elif self._events and number == 0:
                found.append(self._part(time_ms))
            if self._skip:
                self._skip -= 1
            elif event.type == rpc.Event.PUT:
                self._events.append(Event(True, kv.key, kv.value, kv.create_revision, kv.version, kv.lease))
            else:
                self._events.append(Event(False, kv.key))
        if self._open and not response.fragment:
            found.append(self._end(time_ms, newest))
        return found

    def _part(self, time_ms: int) -> Revision:
        part = Revision(self.next, time_ms, tuple(self._events), more=True)
        self._given += len(self._events)
        self._events = []
        return part

    def _end(self, time_ms: int, newest: int) -> Revision:
        whole = Revision(self.next, time_ms, tuple(self._events), behind=newest > self.next)
        self._events = []
        self._open = False
        self._given = self._skip = 0
        self.next += 1
        return whole
