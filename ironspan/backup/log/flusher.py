# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Several times a second, makes batches of what the reader brought."""

from __future__ import annotations

import threading

from ironspan.backup.log.batch import MAX_BYTES, Cutter
from ironspan.backup.log.inbox import Closed, Inbox
from ironspan.backup.log.leases import LeaseBook
from ironspan.backup.log.outbox import Outbox
from ironspan.program.errors import ProgramError

FLUSH_S = 0.2


class Flusher:
    """Moves records from the inbox to the outbox, with leases and cut into batches; one thread of its own.

    It ends by itself, without a failure, when the inbox is closed and empty.

    Args:
        inbox: from the reader.
        outbox: to the sender.
        leases: adds what there is to say about them.
        next_revision: the first one to come.
        flush_s: seconds between two flushes; half of it is what the flusher adds to a write's way.
    """

    def __init__(
        self, inbox: Inbox, outbox: Outbox, leases: LeaseBook, next_revision: int, flush_s: float = FLUSH_S
    ) -> None:
        self._inbox = inbox
        self._outbox = outbox
        self._leases = leases
        self._cutter = Cutter(next_revision)
        self._flush = flush_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log-flusher", daemon=True)
        self.failure: ProgramError | None = None
        self.ended = threading.Event()

    def start(self) -> None:
        """Begin to flush."""
        self._thread.start()

    def stop(self, drain_s: float) -> None:
        """Flush what the inbox still has for up to some seconds, end the thread and wait for it.

        The inbox has to be closed before. What does not fit the outbox then is read from etcd again later.
        """
        self._end.set()
        if self._thread.ident is not None:
            self.ended.wait(drain_s)
            self._outbox.close()
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._end.is_set() and not self._inbox.closed:
                self._inbox.wait(self._flush)
                self._empty()
                self._outbox.tick()
                self._leases.sweep()
            self._empty()
        except Closed:
            pass
        except ProgramError as error:
            self.failure = error
        except Exception as error:
            self.failure = ProgramError(f"The flusher of the log failed: {error!r}.")
        finally:
            self.ended.set()

    def _empty(self) -> None:
        while records := self._inbox.take(MAX_BYTES):
            for batch in self._cutter.cut(self._leases.complete(records)):
                self._outbox.put(batch)
