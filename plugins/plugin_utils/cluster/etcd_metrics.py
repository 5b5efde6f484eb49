# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What an etcd member counts of itself: how long its disk takes to write the log."""

from __future__ import annotations

import http.client
import re
import ssl
from collections.abc import Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.etcd import PORT

_TIMEOUT_SECONDS = 10
_MOST_BYTES = 8 * 1024 * 1024
_BUCKET = re.compile(
    r'^etcd_disk_wal_fsync_duration_seconds_bucket\{[^}]*le="([0-9.e+-]+|\+Inf)"[^}]*\} ([0-9.e+]+)$',
    re.MULTILINE,
)


def fsync_p99(address: str, context: ssl.SSLContext, port: int = PORT) -> float | None:
    """Return a member's p99 of fdatasync since it started, in seconds; None where it does not say.

    Args:
        address: of the member.
        context: trusts the etcd authority and shows a client certificate.
        port: of its clients.
    """
    connection = http.client.HTTPSConnection(address, port, timeout=_TIMEOUT_SECONDS, context=context)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read(_MOST_BYTES).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return quantile(buckets_of(text), 0.99)


def buckets_of(text: str) -> list[tuple[float, float]]:
    """Return the buckets of the histogram: (upper bound in seconds, count up to it), in order."""
    return sorted((float(bound), float(count)) for bound, count in _BUCKET.findall(text))


def quantile(buckets: Sequence[tuple[float, float]], share: float) -> float | None:
    """Return a quantile as Prometheus computes it, linear within its bucket; None of nothing.

    Args:
        buckets: as ``buckets_of`` returns them. Above the last bound that is a number nothing is known: that
            bound is returned.
        share: such as 0.99.
    """
    total = buckets[-1][1] if buckets else 0.0
    if total <= 0:
        return None
    rank, lower, below = share * total, 0.0, 0.0
    for bound, count in buckets:
        if count >= rank and count > below:
            return (
                lower if bound == float("inf") else lower + (bound - lower) * (rank - below) / (count - below)
            )
        lower, below = (lower if bound == float("inf") else bound), count
    return lower
