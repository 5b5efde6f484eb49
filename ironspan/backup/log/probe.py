# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Asks etcd, past the watch, which revision it has acknowledged."""

from __future__ import annotations

import contextlib
import threading
import time

from ironspan.backup.etcd.client import EtcdClient
from ironspan.backup.etcd.errors import EtcdError
from ironspan.backup.log.position import Position


class Probe:
    """Compares the watch with a read that sees every acknowledged write; one thread of its own.

    Args:
        client: of the cluster.
        position: is told what etcd says.
        interval_s: between two reads, seconds.
    """

    def __init__(self, client: EtcdClient, position: Position, interval_s: float = 1.0) -> None:
        self._client = client
        self._position = position
        self._interval = interval_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log-probe", daemon=True)
        self.revision = 0
        """What etcd had at the last read that succeeded."""

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a read that hangs is not waited for."""
        self._end.set()
        if self._thread.ident is not None:
            self._thread.join(self._interval)

    def _run(self) -> None:
        while not self._end.wait(self._interval):
            at = time.monotonic()
            with contextlib.suppress(EtcdError):
                self.revision = self._client.header(timeout=self._interval).revision
                self._position.acknowledged(self.revision, at)
