# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F811  (fixtures are imported by the names of the parameters)
"""An agent that is killed while a snapshot goes to real Azurite."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from ironspan.etcd.client import EtcdClient
from tests.integration.test_backup_agent_azure import agents  # noqa: F401
from tests.support.agent_process import AgentSite, wait
from tests.support.lab_azure import LabAzure, azure, container, running_azure  # noqa: F401


@pytest.mark.long
def test_an_agent_killed_before_its_pieces_are_one_leaves_no_snapshot(
    agents: AgentSite, client: EtcdClient, azure: LabAzure
) -> None:
    for number in range(60):
        client.put(b"/registry/secrets/%d" % number, os.urandom(200_000))
    # The pieces arrive, the list that makes an object of them does not.
    azure.fault("hang", method="PUT", comp="blocklist")
    process = subprocess.Popen(agents.command("a", "snapshot"), stderr=subprocess.DEVNULL)
    wait(lambda: any(fault["hits"] for fault in azure.do("status")["faults"]), "all pieces are there")
    process.kill()
    process.wait()
    azure.heal()
    assert [one for one in azure.requests() if one["comp"] == "block"]
    assert not agents.found().snapshots
    assert not agents.found().unfinished
    done = agents.run("snapshot", "--json")
    assert done.returncode == 0, done.stderr
    assert [one.id for one in agents.found().snapshots] == [json.loads(done.stdout)["id"]]
