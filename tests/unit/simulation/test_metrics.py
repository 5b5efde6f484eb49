# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the API server counts is read as Prometheus reads it."""

from __future__ import annotations

import bisect
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.simulation.metrics import DURATION, Scrape, differences, quantile, requests

BOUNDS = (0.005, 0.025, 0.1, 0.5, 1.0, math.inf)


def histogram(values: list[float]) -> dict[float, float]:
    """Return how many values are at most as large as each bound."""
    return {bound: sum(value <= bound for value in values) for bound in BOUNDS}


def scrape(rows: dict[tuple[str, str, str], list[float]], extra: str = "") -> Scrape:
    """Return an API server's answer for requests by verb, resource and subresource."""
    lines = ["# HELP is no metric"]
    for (verb, resource, part), values in rows.items():
        for bound, count in histogram(values).items():
            le = "+Inf" if bound == math.inf else str(bound)
            labels = f'group="",le="{le}",resource="{resource}",scope="resource",subresource="{part}"'
            lines.append(f'{DURATION}_bucket{{{labels},verb="{verb}",version="v1"}} {count}')
    return Scrape("\n".join([*lines, extra]), (DURATION, "apiserver_watch"))


@given(st.lists(st.floats(0.0001, 0.999), min_size=1, max_size=200), st.sampled_from([0.5, 0.9, 0.99]))
@example([0.5, 0.5, 0.5, 0.75, 0.75, 0.75], 0.5)
def test_a_quantile_lies_in_the_bucket_of_the_value_itself(values: list[float], share: float) -> None:
    exact = sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
    upper = BOUNDS[bisect.bisect_left(BOUNDS, exact)]
    lower = max((bound for bound in BOUNDS if bound < upper), default=0.0)
    assert lower <= quantile(share, histogram(values)) <= upper


@pytest.mark.parametrize(
    ("values", "found"),
    [([], math.nan), ([7.0], 1.0), ([0.05] * 100, 0.025 + 0.075 * 0.99)],
    ids=["nothing", "beyond the last bound", "within one bucket"],
)
def test_quantiles(values: list[float], found: float) -> None:
    assert quantile(0.99, histogram(values)) == pytest.approx(found, nan_ok=True)


def test_only_what_came_between_two_scrapes_counts() -> None:
    old = {("PATCH", "nodes", "status"): [0.6] * 100, ("WATCH", "nodes", ""): [0.6]}
    new = {
        **old,
        ("PATCH", "nodes", "status"): [0.6] * 100 + [0.01] * 50,
        ("PUT", "leases", ""): [0.05],
        ("WATCH", "nodes", ""): [0.6] * 9,
    }
    found = requests(scrape(old), scrape(new))
    assert [(row.verb, row.resource, row.count) for row in found] == [
        ("PATCH", "nodes/status", 50),
        ("PUT", "leases", 1),
    ]
    assert found[0].p99 < 0.025


def test_counters_and_their_labels() -> None:
    name = "apiserver_watch_events_total"
    before = scrape({})
    after = scrape({}, f'{name}{{kind="Node, \\"quoted\\""}} 3\n{name}{{kind="Pod"}} 1e+06')
    assert differences(before, after, [name]) == {name: 1_000_003}
    assert after.total(name, kind="Pod") == 1_000_000
    assert after.by(name, "kind") == {('Node, \\"quoted\\"',): 3, ("Pod",): 1_000_000}
