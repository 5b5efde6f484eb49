# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The right to be the only one that acts: a lease, held by a thread.

The lease keeps programs from working against each other; it does not alone keep what they write right. A
holder that was stopped for minutes and goes on believes in a lease that is gone, and what it sent in time may
arrive late. Therefore a holder asks before each write whether it still leads, and its writes name what they
follow on (a position of a log, a version of an object), so that a late one is refused.
"""

from __future__ import annotations

import contextlib
import threading
import time
import typing as t
from collections.abc import Callable

from ironspan.program.errors import LeaseLost, Refused, ServiceError

SECONDS = 15
"""The shortest that stores offer: a killed holder's successor waits this long."""
RENEW_SECONDS = 3.0
MARGIN_SECONDS = 5.0
"""Nothing is sent in the lease's last seconds: what is sent then might arrive after it."""
STANDBY_SECONDS = 2.0
REFUSED_SECONDS = 60.0
"""Between two tries where the place refuses: a new role assignment takes up to ten minutes to count."""
AFTER_OUTAGE_SECONDS = 10.0
"""A standby leaves a store that just came back to the agent that has the log of the outage spooled."""
_PATIENCE_SECONDS = 5.0


class Lease(t.Protocol):
    """The right to be the only one that acts, until it runs out."""

    @property
    def id(self) -> str:
        """Identifies this lease among all that were ever held."""

    def renew(self) -> None:
        """Hold it for its seconds again. Raises LeaseLost when another took it."""

    def release(self) -> None:
        """Give it up; a lease that is lost already is no error."""


class Leases(t.Protocol):
    """Where leases are: a store of backups, or a cluster (ironspan/kubernetes/lease.py)."""

    def acquire(self, name: str, seconds: int, holder: str) -> Lease:
        """Take a lease, which is made if it is missing. Raises LeaseLost, and ServiceError."""


def elapsed() -> float:
    """Return seconds that are never set back, and go on while the host sleeps, as others' do."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Leadership:
    """Takes the lease and keeps it.

    Args:
        leases: where it is.
        name: of the lease's object.
        holder: who asks, for messages of others.
        clock: seconds, never set back.
    """

    def __init__(self, leases: Leases, name: str, holder: str, clock: Callable[[], float] = elapsed) -> None:
        self._leases = leases
        self._name = name
        self._holder = holder
        self._clock = clock
        self._lease: Lease | None = None
        self._until = self._not_before = float("-inf")
        self._lock = threading.Lock()
        self.problem: ServiceError | None = None
        self.refusals = 0
        """How often in a row it was said that another has the lease, or that ours is gone."""

    def remaining(self) -> float:
        """Return for how many seconds a write may still be sent; 0 without the lease."""
        return max(0.0, self._until - self._clock())

    def held(self) -> bool:
        """Return whether a write may be sent now."""
        return self.remaining() > 0

    def step(self) -> bool:
        """Take the lease or renew it, once; return whether it is held now. Never raises ServiceError."""
        with self._lock:
            asked = self._clock()
            if asked < self._not_before:
                return False
            try:
                if self._lease is None:
                    self._lease = self._leases.acquire(self._name, SECONDS, self._holder)
                else:
                    self._lease.renew()
            except LeaseLost as error:
                self._lease, self._until, self.problem = None, float("-inf"), error
                self.refusals += 1
                return False
            except ServiceError as error:
                # Unknown outcome: the lease may be ours for its old time, and may be renewed later.
                self.problem = error
                return self.held()
            self.refusals = 0
            # From when it was asked for: the other side counts from later than that.
            self._until, self.problem = asked + SECONDS - MARGIN_SECONDS, None
            return True

    def pause(self) -> float:
        """Return how many seconds to wait before the next step."""
        if isinstance(self.problem, Refused) and not self.held():
            return REFUSED_SECONDS
        if self._lease is not None:
            return RENEW_SECONDS if self.problem is None else RENEW_SECONDS / 3
        if isinstance(self.problem, LeaseLost):
            return STANDBY_SECONDS
        return AFTER_OUTAGE_SECONDS if self.problem else max(0.0, self._not_before - self._clock())

    def release(self, seconds: float = 0.0) -> None:
        """Give the lease up, so that a successor need not wait for its end.

        Args:
            seconds: for how long this program does not ask for it again.
        """
        with self._lock:
            self._not_before = self._clock() + seconds
            lease, self._lease, self._until = self._lease, None, float("-inf")
            if lease is not None:
                # Where nobody answers, it runs out.
                with contextlib.suppress(ServiceError):
                    lease.release()


class Keeper:
    """Steps a leadership in a thread of its own, so that no slow write delays a renewal.

    Args:
        leadership: what to keep.
        seen: called after every step, for metrics.
    """

    def __init__(self, leadership: Leadership, seen: Callable[[], None] = lambda: None) -> None:
        self.leadership = leadership
        self._seen = seen
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def __enter__(self) -> Keeper:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end.set()
        self._thread.join(_PATIENCE_SECONDS)
        # Who does not even answer the renewal would not take the release; the lease runs out.
        if not self._thread.is_alive():
            self.leadership.release()

    def _run(self) -> None:
        while not self._end.wait(self.leadership.pause()):
            self.leadership.step()
            self._seen()
