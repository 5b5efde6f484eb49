# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What stands behind virtual machines: a driver that starts, stops and removes something for each."""

from __future__ import annotations

import hashlib
from typing import Any, Protocol

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from ironspan.lab.azure.arm.rules.common import named, reference
from ironspan.lab.azure.arm.state import Operation, Resource, State

#: Seconds between two looks at a machine that boots, and how long Azure waits for its agent.
_LOOK_S, _BOOT_S = 0.5, 600.0


class DriverError(Exception):
    """What stands behind a machine cannot be made; the text says why."""


class Driver(Protocol):
    """Makes virtual machines real."""

    def start(self, machine: dict[str, Any]) -> None:
        """Start a machine, made if it is new; may be repeated."""

    def stop(self, machine: dict[str, Any]) -> None:
        """Stop a machine and keep its disks; may be repeated."""

    def remove(self, machine: dict[str, Any]) -> None:
        """Remove a machine for good; may be repeated."""

    def ready(self, machine: dict[str, Any]) -> bool:
        """Tell whether a machine that was started is up; raises DriverError when it never will be."""

    def forget_disk(self, name: str) -> None:
        """Delete what a disk holds; may be repeated."""

    def host_keys(self, machine: dict[str, Any]) -> list[str]:
        """Return the machine's public SSH host keys, as their files have them."""


class Recorder:
    """A driver that makes nothing and remembers what was asked of it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def start(self, machine: dict[str, Any]) -> None:
        """Remember the call."""
        self.calls.append(("start", str(machine["name"])))

    def stop(self, machine: dict[str, Any]) -> None:
        """Remember the call."""
        self.calls.append(("stop", str(machine["name"])))

    def remove(self, machine: dict[str, Any]) -> None:
        """Remember the call."""
        self.calls.append(("remove", str(machine["name"])))

    def ready(self, machine: dict[str, Any]) -> bool:
        """Tell that it is: nothing boots here."""
        return True

    def forget_disk(self, name: str) -> None:
        """Remember the call."""
        self.calls.append(("forget_disk", name))

    def host_keys(self, machine: dict[str, Any]) -> list[str]:
        """Return a key that is the machine's while it lives: the next one of its name has another."""
        seed = hashlib.sha256(str(machine["vm_id"]).encode()).digest()
        public = ed25519.Ed25519PrivateKey.from_private_bytes(seed).public_key()
        text = public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        return [f"{text.decode()} root@{machine['name']}"]


def data_disk(machine: Resource) -> str:
    """Return the name of the disk at a machine's first place for data; "" without one."""
    for one in named(machine.properties.get("storageProfile", {}).get("dataDisks")):
        if one.get("lun") == 0:
            return reference(one.get("managedDisk")).rpartition("/")[2]
    return ""


def described(state: State, resource: Resource) -> dict[str, Any]:
    """Return what a driver is told of a machine."""
    address = ""
    for one in named(resource.properties.get("networkProfile", {}).get("networkInterfaces")):
        interface = state.find(reference(one))
        for configuration in named(interface.properties.get("ipConfigurations") if interface else ()):
            address = address or str(configuration.get("properties", {}).get("privateIPAddress", ""))
    profile = resource.properties.get("osProfile", {})
    keys = named(profile.get("linuxConfiguration", {}).get("ssh", {}).get("publicKeys"))
    return {
        "id": resource.id,
        "vm_id": resource.properties.get("vmId", ""),
        "name": resource.document["name"],
        "computer": profile.get("computerName") or resource.document["name"],
        "user": profile.get("adminUsername", ""),
        "authorized_keys": [str(one.get("keyData", "")) for one in keys],
        "disk": data_disk(resource),
        "zone": next(iter(resource.document.get("zones") or []), ""),
        "address": address,
        "size": resource.properties.get("hardwareProfile", {}).get("vmSize", ""),
        "tags": dict(resource.document.get("tags") or {}),
        "identities": list((resource.document.get("identity") or {}).get("userAssignedIdentities") or {}),
    }


def boots(state: State, driver: Driver, machine: Resource, operation: Operation) -> bool:
    """Start a machine that is new, and tell whether the operation that makes it has to wait for it.

    A machine that never answers fails, as Azure's do whose agent does not.
    """
    if operation.data.get("error") or machine.power not in ("", "running"):
        return False
    about, now = described(state, machine), state.now()
    if "since" not in operation.data:
        operation.data["since"] = now
        driver.start(about)
    try:
        if driver.ready(about):
            return False
    except DriverError as error:
        operation.data["error"] = {"code": "OSProvisioningClientError", "message": str(error)}
        return False
    if now - operation.data["since"] > _BOOT_S:
        message = f"OS Provisioning for VM '{about['name']}' did not finish in the allotted time."
        operation.data["error"] = {"code": "OSProvisioningTimedOut", "message": message}
        return False
    operation.due = now + _LOOK_S
    return True
