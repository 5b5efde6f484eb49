# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reads what Kubernetes and etcd count: counters, gauges and histograms in Prometheus' text form."""

from __future__ import annotations

import collections
import dataclasses
import math
import re
import typing as t
from collections.abc import Iterable, Mapping

Labels = frozenset[tuple[str, str]]
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
DURATION = "apiserver_request_duration_seconds"
"""From a request's arrival to the end of its answer: what it waited in a queue of the server is in it."""


class Scrape:
    """One answer of ``/metrics``.

    Args:
        text: the answer.
        names: prefixes of the metrics that are kept; the API server has tens of thousands of lines.
    """

    def __init__(self, text: str, names: tuple[str, ...]) -> None:
        self._values: dict[str, dict[Labels, float]] = collections.defaultdict(dict)
        for line in text.splitlines():
            if line.startswith(names):
                head, _, value = line.rpartition(" ")
                name, _, labels = head.partition("{")
                self._values[name][frozenset(_LABEL.findall(labels))] = float(value)

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of a metric over everything that has the labels given."""
        wanted = set(labels.items())
        return sum(value for found, value in self._values[name].items() if wanted <= found)

    def by(self, name: str, *keys: str) -> dict[tuple[str, ...], float]:
        """Return the sums of a metric for each combination of some labels' values."""
        sums: dict[tuple[str, ...], float] = collections.defaultdict(float)
        for labels, value in self._values[name].items():
            given = dict(labels)
            sums[tuple(given.get(key, "") for key in keys)] += value
        return dict(sums)


@dataclasses.dataclass(frozen=True)
class Row:
    """Requests of one kind within a time.

    Args:
        verb: as the API server counts it: LIST and GET apart, APPLY apart from PATCH.
        resource: with its subresource behind a slash.
        scope: resource, namespace or cluster.
        count: how many were answered.
        p99: seconds.
    """

    verb: str
    resource: str
    scope: str
    count: int
    p99: float


def requests(before: Scrape, after: Scrape) -> list[Row]:
    """Return how long the API server took for each kind of request between two scrapes, most frequent first.

    Watches last until they are ended, and are left out.
    """
    keys = ("verb", "resource", "subresource", "scope")
    start = before.by(f"{DURATION}_bucket", *keys, "le")
    buckets: dict[tuple[str, ...], dict[float, float]] = collections.defaultdict(dict)
    for labels, value in after.by(f"{DURATION}_bucket", *keys, "le").items():
        if labels[0] not in ("WATCH", "CONNECT"):
            buckets[labels[:-1]][float(labels[-1])] = value - start.get(labels, 0)
    rows = [
        Row(verb, f"{resource}/{part}".rstrip("/"), scope, round(found[math.inf]), quantile(0.99, found))
        for (verb, resource, part, scope), found in buckets.items()
        if found[math.inf] > 0
    ]
    return sorted(rows, key=lambda row: (-row.count, row.verb, row.resource, row.scope))


def quantile(share: float, buckets: Mapping[float, float]) -> float:
    """Return a quantile of a histogram as Prometheus' ``histogram_quantile`` does: linear within a bucket.

    Args:
        share: between 0 and 1.
        buckets: how many were at most as large as each bound; one bound is infinite.

    Returns:
        The value; the largest finite bound when it lies beyond that, NaN when nothing was counted.
    """
    rank = share * buckets[math.inf]
    if not rank:
        return math.nan
    lower, below = 0.0, 0.0
    for bound, count in sorted(buckets.items()):
        if count >= rank and bound != math.inf:
            # Rounding must not carry it out of its bucket.
            return min(bound, lower + (bound - lower) * (rank - below) / (count - below))
        if bound != math.inf:
            lower, below = bound, count
    return lower


def differences(before: Scrape, after: Scrape, names: Iterable[str]) -> dict[str, float]:
    """Return by how much some counters grew."""
    return {name: after.total(name) - before.total(name) for name in names}


def rounded(value: t.Any) -> t.Any:
    """Return a value for a report: floats with three significant digits."""
    return float(f"{value:.3g}") if isinstance(value, float) else value
