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


# Clusters on which workers and members are joined and replaced: test_cluster.py does all of it in short.
LONG = [pytest.param(name, marks=pytest.mark.long) for name in ("node", "node_lifecycle", "member_replace")]


@pytest.mark.parametrize("scenario", ["default", "upgrade", *LONG])
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
        timeout=1500,
    )
    assert done.returncode == 0, done.stdout[-20000:]
