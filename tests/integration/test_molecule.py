# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The molecule scenarios pass."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.support.playbooks import BIN, ROOT

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root"),
]


# What they do, test_cluster.py does on the cluster that it has. A new cluster, its second run and checks
# (default): from test_bare_hosts_become_a_cluster to test_check_mode_of_a_whole_cluster_says_nothing_changes;
# `upgrade` uses the playbooks of `default`. Workers and members that are joined and replaced (the others):
# test_a_worker_is_removed..., test_a_dead_worker..., test_a_member_that_lost_its_disk...
LONG = ("default", "node", "node_lifecycle", "member_replace")


@pytest.mark.parametrize("scenario", ["upgrade", *(pytest.param(s, marks=pytest.mark.long) for s in LONG)])
def test_a_scenario_converges_twice_and_verifies(scenario: str) -> None:
    done = subprocess.run(
        [str(BIN / "molecule"), "test", "-s", scenario],
        cwd=ROOT,
        env=os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}", "NO_COLOR": "1"},
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        timeout=3600,
    )
    assert done.returncode == 0, done.stdout[-20000:]
