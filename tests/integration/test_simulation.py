# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Nodes of kwok join a real control plane: a few every time, the 1,000 of docs/sizes.md when asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import kwok
from tests.support.simulation.outcome import Outcome, Plan
from tests.support.simulation.report import text
from tests.support.simulation.scenario import simulate

pytestmark = pytest.mark.lab
FEW = Plan(
    nodes=20,
    pods_per_node=2,
    watchers=5,
    pod_watches=5,
    seconds=2,
    events_apart=True,
    fsync=False,
    patience=300,
)
THOUSAND = Plan(nodes=1000, pods_per_node=2, watchers=50, pod_watches=1000, seconds=90, patience=300)


@pytest.fixture(scope="module")
def program() -> Path:
    found = kwok.find()
    if found is None:
        pytest.skip(f"kwok is not compiled: {kwok.BUILD}")
    return found


def check(outcome: Outcome) -> None:
    """Compare what was measured with what a cluster must be like at any size."""
    plan = outcome.plan
    assert outcome.flaps == [], text(outcome)
    found = {resource: outcome.objects[resource] for resource in ("nodes", "leases", "pods")}
    assert found == {"nodes": plan.nodes, "leases": plan.nodes, "pods": plan.nodes * plan.pods_per_node}
    # Those of the simulation; controllers and the scheduler have theirs.
    assert outcome.watches["nodes"] > plan.watchers
    assert outcome.watches["pods"] > plan.pod_watches
    joins = {(row.verb, row.resource): row.count for row in outcome.phase("join").requests}
    assert joins["POST", "nodes"] == plan.nodes


def test_a_few_nodes_join_and_stay_ready(program: Path, tmp_path: Path) -> None:
    outcome = simulate(FEW, program, tmp_path, print)
    print(text(outcome))
    check(outcome)
    assert outcome.etcd_bytes.keys() == {"etcd-1", "events"}


@pytest.mark.long
@pytest.mark.parametrize("with_profile", [True, False])
def test_a_thousand_nodes_join_and_stay_ready(program: Path, tmp_path: Path, with_profile: bool) -> None:
    plan = Plan(**{**vars(THOUSAND), "with_profile": with_profile})
    outcome = simulate(plan, program, tmp_path, print)
    print(text(outcome))
    check(outcome)
    assert ("max-requests-inflight" in outcome.flags) == with_profile
    assert outcome.phase("quiet").rate("PUT", "leases") > 0
