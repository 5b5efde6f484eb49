# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What stands behind virtual machines: a driver that starts, stops and removes something for each."""

from __future__ import annotations

import hashlib
from typing import Any, Protocol

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from ironspan.lab.azure.arm.rules.common import named, reference
from ironspan.lab.azure.arm.state import Resource, State


class Driver(Protocol):
    """Makes virtual machines real."""

    def start(self, machine: dict[str, Any]) -> None:
        """Start a machine, made if it is new; may be repeated."""

    def stop(self, machine: dict[str, Any]) -> None:
        """Stop a machine and keep its disks; may be repeated."""

    def remove(self, machine: dict[str, Any]) -> None:
        """Remove a machine for good; may be repeated."""

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

    def host_keys(self, machine: dict[str, Any]) -> list[str]:
        """Return a key that is the machine's while it lives: the next one of its name has another."""
        seed = hashlib.sha256(str(machine["vm_id"]).encode()).digest()
        public = ed25519.Ed25519PrivateKey.from_private_bytes(seed).public_key()
        text = public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        return [f"{text.decode()} root@{machine['name']}"]


def described(state: State, resource: Resource) -> dict[str, Any]:
    """Return what a driver is told of a machine."""
    address = ""
    for one in named(resource.properties.get("networkProfile", {}).get("networkInterfaces")):
        interface = state.find(reference(one))
        for configuration in named(interface.properties.get("ipConfigurations") if interface else ()):
            address = address or str(configuration.get("properties", {}).get("privateIPAddress", ""))
    return {
        "id": resource.id,
        "vm_id": resource.properties.get("vmId", ""),
        "name": resource.document["name"],
        "computer": resource.properties.get("osProfile", {}).get("computerName") or resource.document["name"],
        "zone": next(iter(resource.document.get("zones") or []), ""),
        "address": address,
        "size": resource.properties.get("hardwareProfile", {}).get("vmSize", ""),
        "tags": dict(resource.document.get("tags") or {}),
        "identities": list((resource.document.get("identity") or {}).get("userAssignedIdentities") or {}),
    }
