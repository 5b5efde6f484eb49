# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Removing and adding a worker, the controller killed on the way: the same run once more finishes it.

The project's playbooks and module on hosts that are private roots, with an API that is a stand-in.
"""

from __future__ import annotations

import contextlib
import os
import signal
import typing as t
from collections.abc import Iterator

import pytest

from ironspan.lab.ports import free_port
from tests.support.fake_api import NODES
from tests.support.playbooks import recap_of
from tests.support.simulated_nodes import NodeApi, Site, node_api
from tests.support.simulated_site import Snapshot, make_store

ADDRESS = "127.78.0.1"
OPERATIONS: dict[str, dict[str, t.Any]] = {
    "node_remove": {"ironspan_hosts": "w1", "ironspan_allow_destructive": True},
    "node_add": {"ironspan_hosts": "w1"},
    "node_replace": {"ironspan_hosts": "w1", "ironspan_allow_destructive": True},
}
STRIKES = (17, 32)
"""Boundaries at which a replacement is killed: the old Node is gone, the new machine has joined."""
SHORT_STRIDE = 7
"""Every seventh boundary in the short version."""


class World:
    """A site with two workers, and how it looks after each operation when nobody disturbs it."""

    def __init__(self, site: Site, api: NodeApi) -> None:
        self.site = site
        self.api = api
        self.after: dict[str, Snapshot] = {}
        self.boundaries: dict[str, int] = {}

    def run(self, operation: str) -> None:
        """Run an operation to its end; insist on the other hosts having been left alone."""
        self.site.choose(operation, **OPERATIONS[operation])
        seen = self.site.folder / "boundaries"
        status, output = self.site.finish(IRONSPAN_TEST_BOUNDARIES=str(seen))
        assert status == 0, output
        assert {"w2", "a1"}.isdisjoint(recap_of(output)), output
        self.site.wait_for_hosts()
        assert self.site.leftovers() == []
        self.boundaries.setdefault(operation, len(seen.read_text().splitlines()))

    def kill(self, operation: str, boundary: int) -> None:
        """Start an operation and kill it at a boundary."""
        self.site.choose(operation, **OPERATIONS[operation])
        process = self.site.start(IRONSPAN_TEST_STOP_AT=str(boundary))
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"{operation} has no boundary {boundary}"
        process.send_signal(signal.SIGKILL)
        process.wait()

    def play(self, boundary: int) -> None:
        """Remove and add w1, each killed at a boundary (as far as it has that many) and then finished."""
        self.api.add_pod("front", "w1")
        for operation in ("node_remove", "node_add"):
            whole = self.boundaries[operation]
            if boundary <= whole:
                self.kill(operation, boundary)
            self.run(operation)
            assert self.site.snapshot() == self.after[operation], f"{operation} killed at {boundary}"
            there = ["w1", "w2"] if operation == "node_add" else ["w2"]
            assert self.api.names(NODES) == there
            assert self.api.pods() == {"front": "w2"}
        assert "unschedulable" not in self.api.objects[f"{NODES}/w1"]["spec"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("operations")
    store = make_store(folder)
    port = free_port(ADDRESS)
    site = Site(folder / "site", folder, ADDRESS, port)
    with node_api(store, site, ADDRESS, port) as api, contextlib.closing(site):
        status, output = site.finish()
        assert status == 0, output
        made = World(site, api)
        for operation in ("node_remove", "node_add"):
            made.run(operation)
            made.after[operation] = site.snapshot()
        yield made


def test_what_is_killed_is_finished_by_the_next_run(world: World) -> None:
    assert min(world.boundaries.values()) > 2 * SHORT_STRIDE, world.boundaries
    for boundary in range(SHORT_STRIDE, max(world.boundaries.values()) + 1, SHORT_STRIDE):
        world.play(boundary)


@pytest.mark.parametrize(
    "boundary", [0, *(pytest.param(strike, marks=pytest.mark.long) for strike in STRIKES)]
)
def test_a_dead_machine_is_replaced_wherever_the_run_was_killed(world: World, boundary: int) -> None:
    """12 s of each run are spent on watching the lease of the dead one."""
    site, api = world.site, world.api
    api.add_pod("front", "w1")
    api.dead = {"w1"}
    old = api.objects[f"{NODES}/w1"]["metadata"]["uid"]
    site.new_machine("w1")
    if boundary:
        world.kill("node_replace", boundary)
    world.run("node_replace")
    assert site.snapshot() == world.after["node_add"]
    assert api.objects[f"{NODES}/w1"]["metadata"]["uid"] != old
    assert "unschedulable" not in api.objects[f"{NODES}/w1"]["spec"]
    assert api.pods() == {"front": "w2"}
    assert not [path for path in api.objects if "ironspan-node-replacements" in path]


@pytest.mark.long
def test_at_every_boundary(world: World) -> None:
    for boundary in range(1, max(world.boundaries.values()) + 1):
        world.play(boundary)
