# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A host dies during an upgrade, the link is cut during a drain: what is left is named, and finished later.

The short versions: a join whose link is cut (test_cluster.py), drains and members that are cut off
(test_member_changes.py and the unit tests of drains).
"""

from __future__ import annotations

import subprocess
import threading
import time
import typing as t

import pytest

from ironspan.lab import host as lab_host
from ironspan.lab import machine, state
from tests.integration.conftest import Cluster
from tests.support.playbooks import Played, play

pytestmark = [pytest.mark.lab, pytest.mark.long]

NODES = {"az-1", "az-2", "rack-1", "rack-2"}
OLDER = "20260701.0"
CUT_S = 40


def upgrade(cluster: Cluster) -> Played:
    """Bring another gVisor to both workers, one after the other."""
    options = ["-e", f"gvisor_version={OLDER}", "-e", "ironspan_hosts=rack-1,rack-2"]
    return play("upgrade", cluster.inventory, cluster.folder, *options)


def closed(cluster: Cluster, node: str) -> bool:
    return bool(cluster.kubectl("get", "node", node)["spec"].get("unschedulable"))


def when(condition: t.Callable[[], bool], act: t.Callable[[], None]) -> threading.Thread:
    """Act, once, as soon as something is so."""

    def watch() -> None:
        deadline = time.monotonic() + 900
        while time.monotonic() < deadline:
            if condition():
                act()
                return
            time.sleep(0.2)

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def runsc(cluster: Cluster, host: str) -> str:
    return cluster.on(host, "runsc --version | head -1")


def test_a_host_that_dies_during_an_upgrade_stops_the_waves_after_it(cluster: Cluster) -> None:
    current = state.load(cluster.lab.name)
    assert current is not None
    first, second = "rack-1", "rack-2"
    before = runsc(cluster, second)
    watch = when(
        lambda: closed(cluster, first),
        lambda: lab_host.stop(cluster.lab.folder, current.layout.host(first), machine.detect()),
    )
    played = upgrade(cluster)
    watch.join()
    assert played.status != 0, played.output
    # Whichever hears of it first: SSH, or the drain that waits for its pods.
    assert played.recap[first]["unreachable"] + played.recap[first]["failed"] == 1, played.output
    assert runsc(cluster, second) == before, "the next wave did not begin"
    assert not closed(cluster, second)

    cluster.lab.up(azure=3, rack=2)
    played = upgrade(cluster)
    assert played.status == 0, played.output
    assert cluster.ready_nodes() == NODES
    assert {host: closed(cluster, host) for host in (first, second)} == {first: False, second: False}
    assert runsc(cluster, first) == runsc(cluster, second) != before


def test_the_link_is_cut_during_a_drain(cluster: Cluster) -> None:
    """The workers lose the API for a while; the operation waits, and the node is removed and added again."""
    worker = ["-e", "ironspan_hosts=rack-2", "-e", "ironspan_allow_destructive=true"]

    def cut() -> None:
        cluster.lab.link(cut=True)
        time.sleep(CUT_S)
        cluster.lab.link(cut=False)

    watch = when(lambda: closed(cluster, "rack-2"), cut)
    played = play("node_remove", cluster.inventory, cluster.folder, *worker)
    watch.join()
    if played.status != 0:
        played = play("node_remove", cluster.inventory, cluster.folder, *worker)
    assert played.status == 0, played.output
    with pytest.raises((AssertionError, subprocess.SubprocessError)):
        cluster.kubectl("get", "node", "rack-2")
    played = play("node_add", cluster.inventory, cluster.folder, *worker[:2])
    assert played.status == 0, played.output
    assert cluster.ready_nodes() == NODES
    cluster.assert_settled()
