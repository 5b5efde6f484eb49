# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The agent's process: stands by until it has the lease, writes while it has it, until it is told to end."""

from __future__ import annotations

import logging
import threading

from ironspan.backup.agent.guard import guarding
from ironspan.backup.agent.metrics import Metrics
from ironspan.backup.agent.session import Session
from ironspan.backup.crypto import Keys
from ironspan.backup.names import Names
from ironspan.backup.settings import Settings
from ironspan.backup.store import Store
from ironspan.backup.stores import client_of, names_of, open_keys, open_store
from ironspan.program import process
from ironspan.program.errors import LeaseLost, ProgramError, Refused
from ironspan.program.leader import REFUSED_SECONDS, Keeper, Leadership
from ironspan.program.service import teller

LOG = logging.getLogger(__name__)
_STEP_SECONDS = 0.1
STAND_BACK_SECONDS = 5.0
"""For so long other agents have the lease to themselves, which ask for it more often than this."""


def run(settings: Settings) -> int:
    """Run the agent until SIGTERM or SIGINT; then what waits is written and the lease given up.

    A kill at any time loses nothing: what is not in the store is in etcd or in the spool. A store that an
    operator has to fix is tried again every minute.

    Args:
        settings: of this host.

    Returns:
        The exit code, 0.

    Raises:
        ProgramError: the metrics' address is taken.
    """
    stop = process.ending()
    metrics = Metrics()
    with metrics.serving(settings.metrics):
        try:
            if opened := _opened(settings, metrics, stop):
                _write(settings, *opened, metrics, stop)
        finally:
            metrics.standby()
    return 0


def _opened(settings: Settings, metrics: Metrics, stop: threading.Event) -> tuple[Store, Keys, Names] | None:
    """Open the store and the keys, as often as it takes; None when told to end before."""
    while not stop.is_set():
        try:
            return open_store(settings.stores[0]), open_keys(settings.keys), names_of(settings)
        except ProgramError as error:
            LOG.error("%s", error)
            metrics.failed(error)
            stop.wait(REFUSED_SECONDS)
    return None


def _write(
    settings: Settings, store: Store, keys: Keys, names: Names, metrics: Metrics, stop: threading.Event
) -> None:
    """Write whenever the lease is held."""
    leadership = Leadership(store, names.writer, settings.host)
    metrics.lease_seconds.set_function(leadership.remaining)
    with (
        client_of(settings) as client,
        Keeper(leadership, teller(leadership, metrics)),
        guarding(settings, client, store, names, metrics, stop),
    ):
        while not stop.is_set():
            metrics.standby()
            if not leadership.held():
                stop.wait(_STEP_SECONDS)
                continue
            try:
                Session(settings, client, store, keys, names, leadership, metrics).run(stop)
            except ProgramError as error:
                LOG.error("%s", error)
                metrics.failed(error)
                leadership.release(_stand_back(error))


def _stand_back(error: ProgramError) -> float:
    """Return for how many seconds the lease is left to others after a failure."""
    if isinstance(error, LeaseLost):
        return 0.0
    return REFUSED_SECONDS if isinstance(error, Refused) else STAND_BACK_SECONDS
