# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' own conformance tests, run against a cluster of the lab.

IRONSPAN_CONFORMANCE names the folder for the logs and reports.
"""

from __future__ import annotations

import os
import pathlib
import shutil

import pytest

from tests.integration.conftest import Cluster
from tests.support import conformance

PROCESSES = int(os.environ.get("IRONSPAN_CONFORMANCE_PROCESSES", "4"))
API_SERVER_PORT = 6443
SMOKE_LIMIT = 900


def programs() -> conformance.Programs:
    """Return the programs; skip the test where they are not built."""
    found = conformance.find()
    if found is None:
        pytest.skip("Kubernetes' tests are not built: make conformance")
    return found


def tested(
    cluster: Cluster, name: str, focus: str, skip: str = "", processes: int = 1, limit: float = SMOKE_LIMIT
) -> None:
    """Run tests, and fail with the names of those that failed.

    Args:
        cluster: that is tested.
        name: of the folder with the log and the report.
        focus: regular expression of names.
        skip: regular expression of names that are left out.
        processes: how many tests at once.
        limit: seconds for all of them.
    """
    kept = os.environ.get("IRONSPAN_CONFORMANCE")
    folder = (pathlib.Path(kept) if kept else cluster.folder) / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config = cluster.folder / "kubeconfig"
    config.touch(mode=0o600)
    text = cluster.on("az-1", "cat /etc/kubernetes/admin.conf")
    # A load balancer would end the connections to an API server that is late, as on a busy machine it is.
    config.write_text(conformance.kubeconfig(text, cluster.address("az-1"), API_SERVER_PORT))
    outcome = conformance.run(programs(), config, folder, focus, skip, processes, limit)
    print(f"{name}: {outcome.counts()}, see {folder}")
    log = (folder / "e2e.log").read_text(errors="replace")
    assert outcome.tests, log[-4000:]
    assert not outcome.failed(), "\n".join([*outcome.failed(), log[-4000:]])
    assert outcome.status == 0, log[-4000:]


def a_few_of_every_area(cluster: Cluster) -> None:
    """Run the tests that are chosen for every run."""
    tested(cluster, "smoke", conformance.focus_of(conformance.chosen()), processes=PROCESSES)
