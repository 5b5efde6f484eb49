# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Decides when a drill is due and has it done, on one host at a time and rather not beside the leader."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ironspan.backup.catalogue import Catalogue, Snapshot, catalogue
from ironspan.backup.rebuild.scratch import Limits, end_with_starter, in_scope
from ironspan.backup.settings import Drill, Settings
from ironspan.backup.store import Store
from ironspan.backup.stores import names_of
from ironspan.program.errors import LeaseLost, ProgramError, ServiceError
from ironspan.program.leader import Lease

LOG = logging.getLogger(__name__)
PAUSE_SECONDS = 15.0
RETRY_SECONDS = 600.0
"""Between drills that could not be done, for example for want of disk."""
LEADER_WAITS_SECONDS = 600.0
"""After this the leader's host does what no other host did: a cluster of one member has no other."""
CHAIN_SECONDS = 6 * 3600.0
"""How often the log is proven from one snapshot to the next. Without it every newest snapshot still is."""
LEASE_SECONDS, RENEW_SECONDS = 60, 15.0


@dataclasses.dataclass(frozen=True, slots=True)
class Due:
    """A snapshot that is to be drilled, since when (seconds since 1970), and why."""

    snapshot: str
    since: float
    why: str


def due(found: Catalogue, rules: Drill, now: float) -> Due | None:
    """Return the drill that is due, if one is.

    The newest snapshot first, at once or when the last proof gets old; then, a few times a day, the one
    before it with its whole log, which has to lead to the newest one.

    Args:
        found: what the store holds.
        rules: of the settings.
        now: seconds since 1970.
    """
    if not found.epochs:
        return None
    snapshots, _ = found.of(found.epochs[-1].epoch)
    if not snapshots:
        return None
    newest = snapshots[-1]
    age = rules.max_age_s / 2
    proven = max((one.verdict.created for one in snapshots if one.verdict), default=0)
    if newest.verdict is None and (rules.after_snapshot or now - proven > age):
        return Due(newest.id, newest.manifest.created, "it is new")
    if newest.verdict is not None and now - newest.verdict.created > age:
        return Due(newest.id, newest.verdict.created + age, "its proof gets old")
    whole = list(itertools.pairwise(snapshots))
    last = max((_proven_to(one, after) for one, after in whole), default=0)
    if whole and now - last > CHAIN_SECONDS and not _failed_to(*whole[-1]):
        return Due(whole[-1][0].id, now, "its log is complete")
    return None


def _proven_to(one: Snapshot, after: Snapshot) -> int:
    """Return when a drill of a snapshot led to the one after it, seconds since 1970; 0 for never."""
    verdict = one.verdict
    return verdict.created if verdict is not None and verdict.revision >= after.revision else 0


def _failed_to(one: Snapshot, after: Snapshot) -> bool:
    verdict = one.verdict
    return verdict is not None and not verdict.verified and verdict.created > after.manifest.created


class Drills:
    """Has the drills done that are due. One thread calls ``step``.

    Args:
        settings: of this host.
        path: the file that they are from, for the command.
        store: where the backups are.
        leads: says whether this host's member leads the cluster; a host without a member never does.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        settings: Settings,
        path: Path,
        store: Store,
        leads: Callable[[], bool],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings, self._path, self._store, self._leads = settings, path, store, leads
        self._clock = clock
        self._names = names_of(settings)
        self._not_before = float("-inf")

    def step(self) -> None:
        """Do a drill if one is due and no other host does it.

        Raises:
            ProgramError: it could not be done, which is no verdict on the backup; it is tried again later.
        """
        now = self._clock()
        if now < self._not_before:
            return
        wanted = self._due()
        if wanted is None or (now - wanted.since < LEADER_WAITS_SECONDS and self._leads()):
            return
        try:
            lease = self._store.acquire(self._names.drill, LEASE_SECONDS, self._settings.host)
        except LeaseLost:
            return
        try:
            LOG.info("Drill of snapshot %s: %s", wanted.snapshot, wanted.why)
            code = self._run(wanted.snapshot, lease)
            left = self._due()
            if left is not None and (left.snapshot, left.why) == (wanted.snapshot, wanted.why):
                raise ProgramError(
                    f"The drill of snapshot {wanted.snapshot} ended with {code} and without a verdict.",
                    "What it said before that in this log is the reason.",
                )
        except ProgramError:
            self._not_before = self._clock() + RETRY_SECONDS
            raise
        finally:
            with contextlib.suppress(ServiceError):
                lease.release()

    def _due(self) -> Due | None:
        return due(catalogue(self._store, self._names), self._settings.drill, self._clock())

    def _run(self, snapshot: str, lease: Lease) -> int:
        rules = self._settings.drill
        command = [
            *in_scope(Limits(rules.memory_max, rules.cpu_quota_percent)),
            *end_with_starter(),
            *(sys.executable, "-m", "ironspan.backup.main", "drill", snapshot),
            *("--store=1", f"--settings={self._path}"),
        ]
        # The packed program finds its code through this process's path only.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment)
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(RENEW_SECONDS)
                self._renew(lease)
        except BaseException:
            process.kill()
            process.wait()
            raise

    def _renew(self, lease: Lease) -> None:
        try:
            lease.renew()
        except LeaseLost:
            raise
        except ServiceError as error:
            # Two drills at once would be a waste, no more.
            LOG.warning("%s", error)


@contextlib.contextmanager
def drilling(settings: Settings, path: Path) -> Iterator[None]:
    """Have the drills of this host done in a thread, as long as the block runs."""
    from ironspan.backup.stores import client_of, open_store
    from ironspan.program.loop import Repeating

    with client_of(settings) as client:

        def leads() -> bool:
            try:
                status = client.status(settings.etcd.local, timeout=2)
            except ProgramError:
                return False
            return status.leader == status.header.member_id

        drills: Drills | None = None

        def step() -> None:
            nonlocal drills
            # A store that refuses now may be fixed while this runs.
            drills = drills or Drills(settings, path, open_store(settings.stores[0]), leads)
            drills.step()

        thread = Repeating("drills", step, PAUSE_SECONDS)
        thread.start()
        try:
            yield
        finally:
            thread.stop(1)
