# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Who renews its lease follows the store; who does not is named."""

from __future__ import annotations

import time
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import following

BOTH = list(following.CONTROLLERS)


class Leases:
    """An API whose leases are renewed at each look, but for the silent ones; time goes with the looks."""

    def __init__(self, nodes: list[str], silent: list[str], absent: t.Collection[str] = ()) -> None:
        self.names = [name for name in [*BOTH, *nodes, "other"] if name not in absent]
        self.silent, self.looks = silent, 0

    def get(self, path: str) -> dict[str, t.Any]:
        self.looks += 1
        nodes = "kube-node-lease" in path
        return {
            "items": [
                {
                    "metadata": {"name": name},
                    "spec": {"renewTime": "long ago" if name in self.silent else str(self.looks)},
                }
                for name in self.names
                if nodes == name.startswith("n")
            ]
        }


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])


def wait(leases: Leases, seconds: float = 100) -> tuple[list[str], list[str]]:
    return following.wait_for_followers(t.cast("t.Any", leases), seconds)


def test_all_follow() -> None:
    assert wait(Leases(["n1", "n2"], [])) == ([*BOTH, "n1", "n2"], [])


def test_a_dead_node_is_named_after_a_while() -> None:
    leases = Leases(["n1", "n2"], ["n2"])
    assert wait(leases) == ([*BOTH, "n1"], ["n2"])
    assert 50 < leases.looks < 80


@pytest.mark.parametrize("how", ["silent", "absent"])
def test_controllers_are_waited_for(how: str) -> None:
    idle = ["kube-scheduler"]
    leases = Leases(["n1"], idle if how == "silent" else [], idle if how == "absent" else ())
    following_, silent = wait(leases)
    assert silent == idle
    assert following_ == ["kube-controller-manager", "n1"]
    assert leases.looks > 200
