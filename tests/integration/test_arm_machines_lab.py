# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A virtual machine of the emulated Azure is a host of the lab: its address, host key, power and end."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.resource.deployments import DeploymentsMgmtClient

from ironspan.lab import Lab, keys, state
from ironspan.lab.azure.config import state_folder
from tests.integration.conftest import lab_name
from tests.support import lab_arm
from tests.support.lab_arm import LabArm
from tests.support.lab_azure import LabAzure

pytestmark = pytest.mark.long
_PATIENCE_S = 120
_AGAIN_S = 0.5


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """The smallest lab."""
    if os.geteuid() != 0:
        pytest.skip("the lab needs root")
    made = Lab(lab_name("itest"))
    try:
        made.up(1, 1)
        yield made
    finally:
        made.down()


def estate(network: str, address: str) -> dict[str, Any]:
    """The small estate with the lab's own network."""
    networks = lab_arm.network_resources()[:2]
    networks[1]["properties"]["addressSpace"]["addressPrefixes"] = [network]
    networks[1]["properties"]["subnets"] = [{"name": "control", "properties": {"addressPrefix": network}}]
    machines = copy.deepcopy(lab_arm.machine_resources(address))
    configuration = machines[1]["properties"]["ipConfigurations"][0]["properties"]
    del configuration["loadBalancerBackendAddressPools"]
    return lab_arm.estate(networks, machines)


def eventually(what: Any) -> Any:
    """Return what a function returns once it is true."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        found = what()
        if found or time.monotonic() > deadline:
            assert found
            return found
        time.sleep(_AGAIN_S)


def test_a_machine_is_a_host(lab: Lab, tmp_path: Path) -> None:
    current = state.load(lab.name)
    assert current is not None
    site = current.layout.azure_site
    address = str(site.network[40])
    service = LabArm(LabAzure(state_folder(lab.folder), {"management": 443}))
    options = {"base_url": f"https://{site.endpoint}"}
    body = {
        "location": lab_arm.REGION,
        "properties": {"mode": "Incremental", "template": estate(str(site.network), address)},
    }
    deployments = service.client(DeploymentsMgmtClient, **options).deployments
    deployments.begin_create_or_update_at_subscription_scope("lab", body).result()
    machines = service.client(ComputeManagementClient, **options).virtual_machines
    command = {"commandId": "RunShellScript", "script": ["cat /etc/ssh/ssh_host_ed25519_key.pub"]}
    shown = machines.begin_run_command("vms", "cp-1", command).result().value[0].message
    known = tmp_path / "known_hosts"
    known.write_text(f"{address} {' '.join(shown.split()[:2])}\n")

    def ssh(what: str) -> str:
        options = [
            f"UserKnownHostsFile={known}",
            "StrictHostKeyChecking=yes",
            "ConnectTimeout=2",
            "BatchMode=yes",
        ]
        arguments = [one for option in options for one in ("-o", option)]
        line = [
            "ssh",
            "-F",
            "/dev/null",
            "-i",
            str(keys.private_key(lab.folder)),
            *arguments,
            f"root@{address}",
            what,
        ]
        return subprocess.run(line, capture_output=True, text=True, check=False).stdout.strip()

    assert eventually(lambda: ssh("hostname")) == "cp-1"
    ask = "curl -s -H Metadata:true http://169.254.169.254/metadata/instance?api-version=2021-02-01"
    itself = json.loads(ssh(ask))["compute"]
    assert (itself["name"], itself["zone"], itself["resourceId"]) == ("cp-1", "1", lab_arm.MACHINE)
    boot = ssh("cat /proc/sys/kernel/random/boot_id; touch /root/kept; stat -c %Y /proc/1")
    machines.begin_deallocate("vms", "cp-1").result()
    eventually(lambda: not ssh("true; echo up"))
    machines.begin_start("vms", "cp-1").result()
    assert eventually(lambda: ssh("ls /root/kept")) == "/root/kept"
    assert ssh("cat /proc/sys/kernel/random/boot_id; stat -c %Y /proc/1") != boot
    machines.begin_delete("vms", "cp-1").result()
    place = lab.folder / "hosts" / "cp-1"
    eventually(lambda: not place.exists())
    after = state.load(lab.name)
    assert after is not None
    assert not [one for one in after.resources if "vm40" in one.name or one.name.endswith("cp-1")]
    assert not keys.host_key(lab.folder, "cp-1").exists()
