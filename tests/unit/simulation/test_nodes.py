# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A node that stops being Ready is seen, whatever happens to it afterwards."""

from __future__ import annotations

import typing as t

import pytest

from tests.support.simulation.nodes import Readiness


def event(ready: str | None, kind: str = "MODIFIED", network: str = "10.128.0.0/24") -> dict[str, t.Any]:
    """Return what a watch tells of a node."""
    conditions = [] if ready is None else [{"type": "Ready", "status": ready}]
    spec = {"podCIDR": network} if network else {}
    return {
        "type": kind,
        "object": {"metadata": {"name": "sim-1"}, "spec": spec, "status": {"conditions": conditions}},
    }


@pytest.mark.parametrize(
    ("events", "flaps", "joined"),
    [
        ([event(None, "ADDED"), event("False"), event("True")], 0, True),
        ([event("True", "ADDED"), event("Unknown")], 1, False),
        (
            [event("True"), event("False"), event("True"), event("True"), event("Unknown"), event("True")],
            2,
            True,
        ),
        ([event("True"), event("True", "DELETED"), event(None, "ADDED")], 0, False),
        ([event("True", network="")], 0, False),
        ([{"type": "BOOKMARK", "object": {}}], 0, False),
    ],
    ids=["joins", "is lost", "flaps twice", "is made anew", "has no part of the pod network", "bookmark"],
)
def test_readiness(events: list[dict[str, t.Any]], flaps: int, joined: bool) -> None:
    seen = Readiness()
    for told in events:
        seen.take(told)
    assert (seen.flaps, seen.joined) == (["sim-1"] * flaps, {"sim-1"} if joined else set())


def test_a_node_that_never_is_ready_is_named() -> None:
    with pytest.raises(TimeoutError, match="sim-1 is not Ready"):
        Readiness().wait("sim-1", 0)
