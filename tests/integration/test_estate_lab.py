# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""From an empty, emulated subscription to a verified cluster, and a member's machine that is deleted.

The commands are those of `make lab AZURE=estate`, and nothing is edited in between.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
import typing as t
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from azure.mgmt.compute import ComputeManagementClient

from ironspan.lab import Lab, names, state
from ironspan.lab.azure import estate as lab_variables
from ironspan.lab.azure import settings
from ironspan.lab.azure.arm.rules.access import IDENTITY
from ironspan.lab.azure.arm.state import State
from ironspan.lab.azure.config import state_folder
from ironspan.lab.layout import API_NAME, Layout
from tests.integration.conftest import Cluster, lab_name
from tests.support.lab_arm import LabArm
from tests.support.lab_azure import LabAzure
from tools import lab_estate

pytestmark = [pytest.mark.lab, pytest.mark.long]
MEMBERS, CONTROL_PLANE, WORKER = ("etcd-1", "etcd-2", "etcd-3"), "control-plane-1", "rack-1"
LOST = "etcd-2"
_PATIENCE_S = 120.0


class EstateCluster(Cluster):
    """A lab whose Azure side is an estate."""

    CONTROL_PLANE: t.ClassVar[str] = CONTROL_PLANE

    @property
    def layout(self) -> Layout:
        current = state.load(self.lab.name)
        assert current is not None
        return current.layout

    def said(self, *arguments: str) -> str:
        """Run a command on the lab's inventory, and return what it printed."""
        done = self.command(*arguments, "-i", str(self.inventory))
        assert done.returncode == 0, f"{arguments}: {done.stdout[-6000:]}"
        return done.stdout


@pytest.fixture(scope="module")
def estate() -> Iterator[EstateCluster]:
    """One control plane, three members of etcd and a worker, as one command makes them."""
    if os.geteuid() != 0:
        pytest.skip("the lab needs root")
    kept = os.environ.get("IRONSPAN_TEST_LAB")
    name = kept or lab_name("iest")
    folder = Path(tempfile.mkdtemp(prefix="isi-", dir="/tmp"))
    made = EstateCluster(Lab(name), folder)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", str(folder / "state"))
            code, took = lab_estate.run(lab_estate.stages(name, rack=1))
        print(f"\n{lab_estate.table(took)}", flush=True)
        assert code == 0, f"stage {took[-1][0]} ended with {code}"
        yield made
    finally:
        if not kept:
            made.lab.down()
        shutil.rmtree(folder, ignore_errors=True)


def eventually(what: Callable[[], object]) -> None:
    """Insist that something becomes true."""
    deadline = time.monotonic() + _PATIENCE_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.5)


def test_machines_of_the_subscription_are_the_cluster(estate: EstateCluster) -> None:
    assert estate.ready_nodes() == {CONTROL_PLANE, WORKER}
    known = {one["name"]: one["ssh"] for one in estate.lab.status()["machines"]}
    assert known == dict.fromkeys((*MEMBERS, CONTROL_PLANE), True)
    ask = "curl -sm 5 -H Metadata:true http://169.254.169.254/metadata/instance?api-version=2021-02-01"
    assert json.loads(estate.on(LOST, ask))["compute"]["name"] == LOST


def test_each_member_has_its_data_on_its_own_disk(estate: EstateCluster) -> None:
    disks = {path.name.partition("-etcd-")[2]: path for path in (estate.lab.folder / "disks").iterdir()}
    assert set(disks) == set(MEMBERS)
    for name in MEMBERS:
        assert list(disks[name].glob("*/member/wal")), f"{name}: etcd writes elsewhere"


def test_the_endpoint_is_a_balancer_that_leads_nobody_to_itself(estate: EstateCluster) -> None:
    site = estate.layout.azure_site
    balancer = str(site.network[10])
    assert names.lookup(str(site.controller), API_NAME) == [balancer]
    ask = "curl -sk -m 5 https://{}:6443/readyz || echo no"
    assert estate.on(WORKER, ask.format(API_NAME)) == "ok"
    assert estate.on(WORKER, ask.format(balancer)) == "ok"
    assert estate.on(CONTROL_PLANE, ask.format(balancer)) == "no"
    assert estate.on(CONTROL_PLANE, ask.format(API_NAME)) == "ok"


def test_backups_go_through_the_private_endpoint(estate: EstateCluster) -> None:
    account = lab_variables.account(estate.layout)
    host = f"{account}.blob.core.windows.net"
    (address,) = names.lookup(str(estate.layout.azure_site.controller), host) or [""]
    assert address in map(str, estate.layout.azure_site.network)
    assert address != str(estate.layout.azure_site.endpoint)
    assert str(settings.ACCOUNT) not in host
    store = LabAzure(state_folder(estate.lab.folder), {})
    principals = {
        one.properties["principalId"]
        for one in State(state_folder(estate.lab.folder)).of_type(IDENTITY)
        if any(one.document["name"].endswith(f"-{member}") for member in MEMBERS)
    }

    def written() -> bool:
        done = [one for one in store.requests() if one["method"] == "PUT" and one["status"] == 201]
        return bool(done) and {one["identity"] for one in done} <= principals

    eventually(written)


def test_a_second_run_changes_nothing(estate: EstateCluster) -> None:
    assert "Deploy the estate as the site wants it: unchanged" in estate.said("azure")
    estate.assert_settled()


def test_a_machine_that_is_deleted_is_made_again_and_its_member_replaced(estate: EstateCluster) -> None:
    manager = LabArm(LabAzure(state_folder(estate.lab.folder), {"management": 443}))
    url = f"https://{estate.layout.azure_site.endpoint}"
    machines = manager.client(ComputeManagementClient, base_url=url).virtual_machines
    group = f"ironspan-lab-{estate.lab.name}-machines"
    disk = next((estate.lab.folder / "disks").glob(f"*{LOST}"))
    machines.begin_delete(group, LOST).result()
    eventually(lambda: not (estate.lab.folder / "hosts" / LOST).exists())
    assert list(disk.iterdir()), "the data went with the machine"
    plan = str(estate.folder / "plan.json")
    estate.said("plan", "azure", "-o", plan)
    shown = estate.command("show", plan).stdout
    assert "create 1 resources (1 virtualMachines)" in shown
    assert f"/virtualMachines/{LOST}\n" in shown
    estate.said("apply", plan)
    estate.said("apply", "member_replace", "-e", f"ironspan_hosts={LOST}", "--allow-destructive")
    estate.said("verify")
    estate.assert_settled()
    assert estate.ready_nodes() == {CONTROL_PLANE, WORKER}
