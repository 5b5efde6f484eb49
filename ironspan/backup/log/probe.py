# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Asks etcd, past the watch, which revision it has acknowledged."""

from __future__ import annotations

import contextlib
import threading
import time

from ironspan.backup.log.position import Position
from ironspan.etcd.client import EtcdClient
from ironspan.etcd.errors import EtcdError

INTERVAL_S = 0.25
"""What would be lost now is known as exactly as this. A read costs etcd one exchange between its members."""
TIMEOUT_S = 2.0


class Probe:
    """Asks again and again, by a read that sees every acknowledged write; one thread of its own.

    Args:
        client: of the cluster.
        cluster_id: of the cluster that the log is of; what another one says is not heard.
        position: is told what etcd says.
        interval_s: between two reads, seconds.
    """

    def __init__(
        self, client: EtcdClient, cluster_id: int, position: Position, interval_s: float = INTERVAL_S
    ) -> None:
        self._client = client
        self._cluster_id = cluster_id
        self._position = position
        self._interval = interval_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log-probe", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a read that hangs is not waited for."""
        self._end.set()
        if self._thread.ident is not None:
            self._thread.join(self._interval)

    def _run(self) -> None:
        while not self._end.is_set():
            at = time.monotonic()
            with contextlib.suppress(EtcdError):
                header = self._client.header(timeout=TIMEOUT_S)
                if header.cluster_id == self._cluster_id:
                    self._position.acknowledged(header.revision, at)
            self._end.wait(self._interval)
