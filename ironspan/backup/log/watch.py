# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Follows etcd's history from a revision on, at one member after the other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ironspan.backup.errors import WrongCluster
from ironspan.backup.log.choice import Choice
from ironspan.backup.log.group import Gap, Grouper
from ironspan.backup.log.inbox import Closed, Inbox
from ironspan.backup.log.position import Position
from ironspan.backup.records import Progress
from ironspan.etcd import rpc_pb2 as rpc
from ironspan.etcd.client import EtcdClient
from ironspan.etcd.errors import Compacted, EtcdError, Unreachable
from ironspan.etcd.watch import Watch
from ironspan.program.errors import ProgramError

INTERVAL_S = 2.0
PAUSE_S = 0.002
"""Seconds from one reading to the next one. What is read as soon as a write is done is out of the way of the
next write; where writes come faster than that, several are read at once."""
PROGRESS_S = 10.0
"""How often an idle cluster's log says that there was nothing."""
BACKOFF_S = (0.1, 2.0)
PATIENCE_MAX = 16


class Reader:
    """Puts etcd's transactions into the inbox, in two threads of its own: one reads, one watches over it.

    It reads from a member that does not lead (``Choice``) and leaves one that an election makes the leader.
    When a member breaks off, stalls, has no leader, or is behind, the next one is asked to go on. A stall
    is found within twice the interval: the member is asked for progress when it says nothing for half the
    interval, and given up when that is not answered. After a stall the next member gets twice the time, and
    so on up to 16 times: etcd is silent while it cuts a large response into fragments, for 1.8 s per 2 MiB
    of small events (measured, etcd 3.6.14; the square of their number). What makes the reading impossible
    ends both threads and is in ``failure``.

    Args:
        client: of the cluster.
        inbox: takes the records; while it is full nothing is read.
        position: is told of what came.
        cluster_id: of the cluster that the log belongs to.
        next_revision: the first one to read.
        interval_s: see above, seconds.
        wall: seconds since 1970, for the records.
    """

    def __init__(
        self,
        client: EtcdClient,
        inbox: Inbox,
        position: Position,
        cluster_id: int,
        next_revision: int,
        interval_s: float = INTERVAL_S,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._inbox = inbox
        self._position = position
        self._cluster_id = cluster_id
        self._interval = interval_s
        self._wall = wall
        self._choice = Choice(client, interval_s / 2)
        self._grouper = Grouper(next_revision)
        self._watch: Watch | None = None
        self._left: Watch | None = None
        self._term = self._settled_term = 0
        self._waiting_since: float | None = None
        self._asked = False
        self._patience = 1
        self._behind_since: float | None = None
        self._last_record = time.monotonic()
        self._end = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name="log-reader", daemon=True),
            threading.Thread(target=self._watch_over, name="log-watchdog", daemon=True),
        ]
        self.endpoint = ""
        """The member that is read from."""
        self.connections = 0
        self.stalls = 0
        self.problem: ProgramError | None = None
        """Why the last connection ended."""
        self.failure: ProgramError | None = None
        """``Gap``, ``WrongCluster`` or a defect: reading ended with it."""
        self.ended = threading.Event()

    def start(self) -> None:
        """Begin to read."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End both threads and wait for them. The inbox is closed."""
        self._end.set()
        self._inbox.close()
        if watch := self._watch:
            watch.cancel()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    # -- the reading thread ------------------------------------------------------------------------

    def _run(self) -> None:
        pause = BACKOFF_S[0]
        try:
            while not self._end.is_set():
                self.endpoint = self._choice.next()
                before = self._grouper.next
                try:
                    self._follow()
                    continue
                except Compacted as error:
                    # Also in the middle of a watch, when the reader had to wait for too long.
                    raise Gap(
                        self._grouper.next, error.compact_revision, "etcd has compacted them."
                    ) from error
                except EtcdError as error:
                    self.problem = error
                delivered = self._grouper.next > before
                self._choice.failed(self.endpoint, delivered=delivered)
                if delivered:
                    pause = BACKOFF_S[0]
                self._end.wait(pause)
                pause = min(pause * 2, BACKOFF_S[1])
        except Closed:
            pass
        except ProgramError as error:
            self.failure = error
        except Exception as error:
            self.failure = ProgramError(f"The reader of etcd's history failed: {error!r}.")
        finally:
            self._end.set()
            self._inbox.close()
            self.ended.set()

    def _follow(self) -> None:
        """Read until the member breaks off, or is left because it leads."""
        self._grouper.restart()
        self._behind_since = None
        self.connections += 1
        watch = self._client.watch(self.endpoint, self._grouper.next, pause_s=PAUSE_S)
        self._waiting_since, self._asked = time.monotonic(), False
        self._watch = watch
        try:
            for response in watch:
                self._waiting_since = None
                self._take(response)
                if self._end.is_set():
                    return
                self._waiting_since, self._asked = time.monotonic(), False
        except Unreachable:
            if self._left is not watch:
                raise
        finally:
            self._waiting_since = None
            watch.cancel()

    def _take(self, response: rpc.WatchResponse) -> None:
        at, header = time.monotonic(), response.header
        if header.cluster_id != self._cluster_id:
            raise WrongCluster(
                f"{self.endpoint} belongs to the etcd cluster {header.cluster_id:x}; the log is of "
                f"{self._cluster_id:x}.",
                "After a restore the agent has to begin a new epoch.",
            )
        if response.created:
            self._settled_term = header.raft_term
        self._term = header.raft_term
        time_ms = int(self._wall() * 1000)
        if response.fragment:
            self._patience = PATIENCE_MAX
        elif not response.created:
            self._patience = 1
        if records := self._grouper.feed(response, time_ms):
            self._inbox.put(records)
            self._last_record = at
            self._behind_since = None
            self._position.received(self._grouper.next - 1)
        elif response.events or response.fragment:
            return
        elif header.revision >= self._grouper.next - 1:
            self._behind_since = None
            if response.created or header.revision >= self._grouper.next:
                return
            self._position.received(header.revision)
            if at - self._last_record >= PROGRESS_S:
                self._inbox.put([Progress(header.revision, time_ms)])
                self._last_record = at
        elif self._behind_since is None:
            self._behind_since = at
        elif at - self._behind_since > self._interval:
            raise Unreachable(
                f"{self.endpoint} is at revision {header.revision}, and the log at "
                f"{self._grouper.next - 1} already.",
                endpoint=self.endpoint,
            )

    # -- the thread that watches over it -----------------------------------------------------------

    def _watch_over(self) -> None:
        while not self._end.wait(self._interval / 8):
            since, watch = self._waiting_since, self._watch
            if since is None or watch is None:
                continue
            silent = time.monotonic() - since
            if silent >= self._interval * 1.75 * self._patience:
                self.stalls += 1
                self._patience = min(self._patience * 2, PATIENCE_MAX)
                self._waiting_since = None
                watch.cancel()
            elif silent >= self._interval / 2 and not self._asked:
                self._asked = True
                watch.request_progress()
                self._see_whether_idle(since)
            elif self._term > self._settled_term:
                self._see_who_leads(watch)

    def _see_whether_idle(self, since: float) -> None:
        """Take the member's word for it that there is nothing new.

        It gives no progress to a watch that begins behind its newest revision until that revision is there.
        """
        at = time.monotonic()
        try:
            header = self._client.header(endpoint=self.endpoint, timeout=self._interval / 2)
        except EtcdError:
            return
        if header.cluster_id != self._cluster_id or header.revision != self._grouper.next - 1:
            return
        self._position.received(header.revision)
        self._position.acknowledged(header.revision, at)
        self._patience = 1
        if self._waiting_since == since:
            self._waiting_since, self._asked = time.monotonic(), False

    def _see_who_leads(self, watch: Watch) -> None:
        """After an election leave the member if it leads now; that of the term it was chosen in is known."""
        term = self._term
        leads = self._choice.leads(self.endpoint)
        if leads and self._watch is watch:
            self._left = watch
            watch.cancel()
        if leads is not None:
            self._settled_term = term
