# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The agent's process: stands by until it has the lease, writes while it has it, until it is told to end."""

from __future__ import annotations

import logging
import signal
import threading

from ironspan.backup.agent.commands import client_of
from ironspan.backup.agent.leader import Keeper, Leadership
from ironspan.backup.agent.metrics import Metrics
from ironspan.backup.agent.session import Session
from ironspan.backup.errors import BackupError, LeaseLost
from ironspan.backup.names import Names
from ironspan.backup.settings import Settings
from ironspan.backup.stores import open_keys, open_store

LOG = logging.getLogger(__name__)
_STEP_SECONDS = 0.1
STAND_BACK_SECONDS = 5.0
"""For so long other agents have the lease to themselves, which ask for it more often than this."""


def run(settings: Settings) -> int:
    """Run the agent until SIGTERM or SIGINT; then what waits is written and the lease given up.

    A kill at any time loses nothing: what is not in the store is in etcd or in the spool.

    Args:
        settings: of this host.

    Returns:
        The exit code, 0.

    Raises:
        BackupError: the store or the keys refuse the settings.
    """
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    metrics = Metrics()
    store, keys = open_store(settings.stores[0]), open_keys(settings.keys)
    leadership = Leadership(store, Names(settings.site).writer, settings.host)
    metrics.lease_seconds.set_function(leadership.remaining)
    server = metrics.serve(settings.metrics.address, settings.metrics.port)
    try:
        with client_of(settings) as client, Keeper(leadership, lambda: _count(leadership, metrics)):
            while not stop.is_set():
                metrics.standby()
                if not leadership.held():
                    stop.wait(_STEP_SECONDS)
                    continue
                try:
                    Session(settings, client, store, keys, leadership, metrics).run(stop)
                except BackupError as error:
                    LOG.error("%s", error)
                    metrics.failed(error)
                    leadership.release(0.0 if isinstance(error, LeaseLost) else STAND_BACK_SECONDS)
    finally:
        metrics.standby()
        server.shutdown()
        server.server_close()
    return 0


def _count(leadership: Leadership, metrics: Metrics) -> None:
    if leadership.problem is not None and not isinstance(leadership.problem, LeaseLost):
        metrics.failed(leadership.problem)
