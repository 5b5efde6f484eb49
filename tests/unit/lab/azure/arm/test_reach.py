# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What an estate does in a lab's network, worked out from what is deployed; machines that have to boot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.declared import declared
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.template import template

from ironspan.lab import keys
from ironspan.lab.azure import estate
from ironspan.lab.azure.arm import machines, reach
from ironspan.lab.azure.arm.reach import Balance, Probe
from ironspan.lab.layout import API_NAME, Layout

from .conftest import Manager

LAYOUT = Layout("estate", 3, 0, 1, estate=3)
PROBE = Probe("Https", 6443, "/readyz", 5.0, 2)


def wanted(folder: Path) -> dict[str, Any]:
    """The template of the estate that the inventory of a lab declares."""
    keys.ensure(folder, LAYOUT)
    variables: dict[str, Any] = {
        "site_name": "lab-estate",
        "site_api_endpoint": f"{API_NAME}:{estate.API_PORT}",
        "site_api_address": str(LAYOUT.api_address),
        **estate.site(LAYOUT, folder, etcd_backup=True),
    }
    made = declared(variables)
    assert made is not None
    return template(made)


@pytest.fixture
def deployed(tmp_path: Path) -> Manager:
    """That estate, deployed."""
    manager = Manager(tmp_path)
    assert manager.deploy(wanted(tmp_path))["provisioningState"] == "Succeeded"
    return manager


def machine_id(manager: Manager, name: str) -> str:
    return next(
        one.id for one in manager.arm.state.resources.values() if one.id.endswith(f"/virtualMachines/{name}")
    )


def test_the_balancer_leads_to_the_control_planes_that_run(deployed: Manager) -> None:
    state, network = deployed.arm.state, LAYOUT.azure_site.network
    address = str(network[32])
    assert reach.balances(state) == [Balance(str(network[10]), 6443, 6443, PROBE, (address,))]
    path = machine_id(deployed, "control-plane-1")
    deployed.ask("POST", f"{path}/deallocate", version="2026-04-01")
    deployed.arm.engine.advance()
    assert [one.members for one in reach.balances(state)] == [()]


def test_names_lead_to_the_balancer_and_to_the_private_endpoint(deployed: Manager) -> None:
    network, found = LAYOUT.azure_site.network, reach.names(deployed.arm.state)
    assert found[API_NAME] == str(network[10])
    name = estate.account(LAYOUT)
    doors = reach.endpoints(deployed.arm.state)
    # Each endpoint has an address of its own, also when several are made at the same time.
    account = next(one for one in deployed.arm.state.resources if one.endswith(f"/storageaccounts/{name}"))
    assert sorted(len(targets) for targets in doors.values()) == [1, 1]
    (endpoint,) = (address for address, targets in doors.items() if account in targets)
    assert (
        found[f"{name}.blob.core.windows.net"]
        == found[f"{name}.privatelink.blob.core.windows.net"]
        == endpoint
    )
    assert network[192] < LAYOUT.azure_site.network[int(endpoint.rpartition(".")[2])] < network[224]
    link = next(one for one in deployed.arm.state.resources.values() if "/virtualnetworklinks/" in one.key
                and f"/{API_NAME}/" in one.key)  # fmt: skip
    del deployed.arm.state.resources[link.key]
    assert API_NAME not in reach.names(deployed.arm.state)


def test_a_driver_is_told_of_account_keys_and_disk(deployed: Manager) -> None:
    told = machines.described(
        deployed.arm.state, deployed.arm.state.resources[machine_id(deployed, "etcd-2").lower()]
    )
    assert (told["user"], told["disk"]) == ("ironspan", "ironspan-lab-estate-etcd-etcd-2")
    assert [one.split()[0] for one in told["authorized_keys"]] == ["ssh-ed25519"]


class Boots(machines.Recorder):
    """A driver whose machines have to boot."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.why = False, ""

    def ready(self, machine: dict[str, Any]) -> bool:
        if self.why:
            raise machines.DriverError(self.why)
        return self.up


@pytest.mark.parametrize(
    ("up", "why", "seconds", "ends"),
    [
        (True, "", 1, ("Succeeded", "")),
        (False, "", 1, ("Running", "")),
        (False, "", 700, ("Failed", "OSProvisioningTimedOut")),
        (False, "no room", 1, ("Failed", "OSProvisioningClientError")),
    ],
)
def test_a_machine_is_made_when_it_has_booted(
    deployed: Manager, tmp_path: Path, up: bool, why: str, seconds: float, ends: tuple[str, str]
) -> None:
    arm, path = deployed.arm, machine_id(deployed, "etcd-1")
    deployed.ask("DELETE", path)
    arm.engine.advance()
    driver = arm.engine.driver = Boots()
    assert deployed.deploy(wanted(tmp_path))["provisioningState"] == "Running"
    assert ("start", "etcd-1") in driver.calls
    driver.up, driver.why = up, why
    arm.state.offset_s += seconds
    arm.engine.advance()
    made = [one for one in arm.state.operations.values() if one.target == path and one.kind == "put"][-1]
    assert (made.status, (made.error or {}).get("code", "")) == ends


def test_what_a_disk_holds_goes_with_the_disk_and_not_with_its_machine(deployed: Manager) -> None:
    arm = deployed.arm
    driver = arm.driver
    assert isinstance(driver, machines.Recorder)
    path = machine_id(deployed, "etcd-1")
    disk = next(
        one.id
        for one in arm.state.resources.values()
        if one.id.endswith("/disks/ironspan-lab-estate-etcd-etcd-1")
    )
    deployed.ask("DELETE", path)
    arm.engine.advance()
    assert ("remove", "etcd-1") in driver.calls
    assert not [call for call in driver.calls if call[0] == "forget_disk"]
    deployed.ask("DELETE", disk)
    arm.engine.advance()
    assert driver.calls[-1] == ("forget_disk", "ironspan-lab-estate-etcd-etcd-1")
