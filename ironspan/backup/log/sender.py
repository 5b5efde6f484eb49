# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Appends batches to the store, in order, for as long as it takes and as long as it may."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence

from ironspan.backup.errors import PositionConflict
from ironspan.backup.log.batch import Batch
from ironspan.backup.log.coalesce import coalesce
from ironspan.backup.log.outbox import Outbox
from ironspan.backup.log.position import Position
from ironspan.backup.records import Record
from ironspan.backup.segment import SegmentWriter
from ironspan.backup.takeover import LogEnd
from ironspan.program.errors import AlreadyThere, LeaseLost, NotThere, ProgramError, Refused, ServiceError
from ironspan.program.leader import REFUSED_SECONDS

APPEND_BYTES = 3 << 20
"""Of records in memory; as bytes of the log they fit one append."""
BACKOFF_S = (0.1, 1.5)
RETRY_AFTER_MAX_S = 60.0
_IDLE_S = 0.5
_FINAL = (LeaseLost, PositionConflict, NotThere, AlreadyThere)


class Sender:
    """Takes batches from the outbox and appends them through a segment writer; one thread of its own.

    A store that fails is asked again, after what it said in Retry-After or 0.1 s, doubled up to 1.5 s, or up
    to a minute where an operator has to fix it; the spool takes the log meanwhile. Other errors end the
    thread and are in ``failure``: another agent writes (``LeaseLost``), the segment is gone (``NotThere``),
    the log is not what was written (``ChainError``), the spool cannot be read. What was not stored is still
    in the outbox.

    Args:
        outbox: from the flusher.
        writer: the segment to append to.
        begin: makes the next segment behind the end of one that is full.
        position: is told what is stored.
        may_write: whether a write may be sent now: the lease is held. Nothing is sent while it is not.
        coalescing: leave out values of node leases that the same append replaces.
        holder: who writes, for people who read the log.
    """

    def __init__(
        self,
        outbox: Outbox,
        writer: SegmentWriter,
        begin: Callable[[LogEnd], SegmentWriter],
        position: Position,
        may_write: Callable[[], bool] = lambda: True,
        coalescing: bool = True,
        holder: str = "",
    ) -> None:
        self._outbox = outbox
        self._begin = begin
        self._position = position
        self._may_write = may_write
        self._coalescing = coalescing
        self._holder = holder
        self._drain = threading.Event()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log-sender", daemon=True)
        self.writer = writer
        """The segment that is written now; changes when one is full."""
        self.problem: ServiceError | None = None
        """Why the store does not take the log just now."""
        self.failure: ProgramError | None = None
        self.appends = 0
        self.written_bytes = 0
        self.ended = threading.Event()

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def stop(self, drain_s: float) -> None:
        """Send what waits for up to some seconds, end the thread and wait for it.

        An append that is under way is waited for; the store's own time-outs end it.
        """
        self._drain.set()
        self.ended.wait(drain_s)
        self._end.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._end.is_set():
                batches = self._outbox.head(APPEND_BYTES, 0.0 if self._drain.is_set() else _IDLE_S)
                if batches:
                    self._send(batches)
                elif self._drain.is_set():
                    return
        except ProgramError as error:
            self.failure = error
        except _Ended:
            pass
        except Exception as error:
            self.failure = ProgramError(f"The sender of the log failed: {error!r}.")
        finally:
            self._end.set()
            self._outbox.close()
            self.ended.set()

    def _send(self, batches: Sequence[Batch]) -> None:
        records: list[Record] = [record for batch in batches for record in batch.records]
        if self._coalescing:
            records = coalesce(records)
        if self.writer.full:
            end = self._insist(lambda: self.writer.seal(self._holder))
            self.writer = self._insist(lambda: self._begin(end))
        before, writer = self.writer.size, self.writer
        pending = False

        def append() -> None:
            nonlocal pending
            if pending:
                # The writer has the records since the first try.
                writer.flush()
                return
            pending = True
            writer.append(records)

        self._insist(append)
        self.appends += 1
        self.written_bytes += writer.size - before
        self._outbox.done(len(batches))

    def _insist[Answer](self, act: Callable[[], Answer]) -> Answer:
        """Do something with the store until it succeeds. Raises what is not worth another try."""
        pause = BACKOFF_S[0]
        while True:
            while not self._may_write():
                self._wait(BACKOFF_S[0])
            try:
                answer = act()
            except _FINAL:
                raise
            except ServiceError as error:
                self.problem = error
                self._position.stored(self.writer.durable)
                asked = min(error.retry_after or 0.0, RETRY_AFTER_MAX_S)
                self._wait(max(asked, pause * random.uniform(0.5, 1.0)))
                pause = min(pause * 2, REFUSED_SECONDS if isinstance(error, Refused) else BACKOFF_S[1])
                continue
            self.problem = None
            self._position.stored(self.writer.durable)
            return answer

    def _wait(self, seconds: float) -> None:
        if self._end.wait(seconds):
            raise _Ended


class _Ended(Exception):
    """The sender was stopped while it waited."""
