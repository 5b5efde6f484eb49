# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which member the log is read from."""

from __future__ import annotations

import collections

from ironspan.etcd.client import EtcdClient
from ironspan.etcd.errors import EtcdError


class Choice:
    """Chooses a member that does not lead, if one is to be had: every write waits for the leader.

    Of those that failed least since something was last read, and of these in the order of the client's
    endpoints, so that every member gets its turn while nothing can be read.

    Args:
        client: of the cluster.
        timeout_s: how long a member may take to say whether it leads, seconds.
    """

    def __init__(self, client: EtcdClient, timeout_s: float) -> None:
        self._client = client
        self._timeout = timeout_s
        self._failures: collections.Counter[str] = collections.Counter()

    def next(self) -> str:
        """Return the endpoint to read from now; members are asked where there is a choice."""
        fewest = min(self._failures[endpoint] for endpoint in self._client.endpoints)
        candidates = [e for e in self._client.endpoints if self._failures[e] == fewest]
        if len(candidates) == 1:
            return candidates[0]
        leads = {}
        for endpoint in candidates:
            leads[endpoint] = self.leads(endpoint)
            if leads[endpoint] is False:
                return endpoint
        return next((endpoint for endpoint in candidates if leads[endpoint]), candidates[0])

    def leads(self, endpoint: str) -> bool | None:
        """Return whether a member leads; None where it does not say, or knows of no leader."""
        try:
            status = self._client.status(endpoint, timeout=self._timeout)
        except EtcdError:
            return None
        return status.leader == status.header.member_id if status.leader else None

    def failed(self, endpoint: str, *, delivered: bool) -> None:
        """Note that a member broke off; ``delivered`` when something was read from it before."""
        if delivered:
            self._failures.clear()
        self._failures[endpoint] += 1
