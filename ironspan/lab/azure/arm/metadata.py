# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the instance metadata service tells a virtual machine of itself, by the address that it asks from.

Format: "Azure Instance Metadata Service" (Microsoft Learn), version 2021-02-01.
"""

from __future__ import annotations

from typing import Any

from ironspan.lab.azure import settings
from ironspan.lab.azure.arm import ids
from ironspan.lab.azure.arm.machines import described
from ironspan.lab.azure.arm.rules.addresses import prefixes
from ironspan.lab.azure.arm.rules.common import named, reference
from ironspan.lab.azure.arm.rules.compute import MACHINE
from ironspan.lab.azure.arm.state import Resource, State


class Instances:
    """The machines that ask."""

    def __init__(self, state: State) -> None:
        self._state = state

    def _machine(self, address: str) -> Resource | None:
        for one in self._state.of_type(MACHINE):
            if address and described(self._state, one)["address"] == address:
                return one
        return None

    def document(self, address: str) -> dict[str, Any] | None:
        """Return what GET /metadata/instance answers to the machine at `address`; None when it is none."""
        machine = self._machine(address)
        own = ids.parse(machine.id) if machine is not None else None
        if machine is None or own is None:
            return None
        tags = {str(name): str(value) for name, value in (machine.document.get("tags") or {}).items()}
        properties = machine.properties
        return {
            "compute": {
                "azEnvironment": "AzurePublicCloud",
                "location": machine.document.get("location", ""),
                "name": machine.document["name"],
                "osProfile": {"computerName": properties.get("osProfile", {}).get("computerName", "")},
                "priority": properties.get("priority", ""),
                "resourceGroupName": own.group,
                "resourceId": machine.id,
                "subscriptionId": own.subscription,
                "tags": ";".join(f"{name}:{value}" for name, value in tags.items()),
                "tagsList": [{"name": name, "value": value} for name, value in tags.items()],
                "vmId": properties.get("vmId", ""),
                "vmScaleSetName": reference(properties.get("virtualMachineScaleSet")).rpartition("/")[2],
                "vmSize": properties.get("hardwareProfile", {}).get("vmSize", ""),
                "zone": next(iter(machine.document.get("zones") or []), ""),
            },
            "network": {"interface": [self._interface(one) for one in self._interfaces(machine)]},
        }

    def _interfaces(self, machine: Resource) -> list[Resource]:
        links = named(machine.properties.get("networkProfile", {}).get("networkInterfaces"))
        found = [self._state.find(reference(one)) for one in links]
        return [one for one in found if one is not None]

    def _interface(self, interface: Resource) -> dict[str, Any]:
        addresses, subnets = [], []
        for one in named(interface.properties.get("ipConfigurations")):
            about = one.get("properties", {})
            addresses.append({"privateIpAddress": about.get("privateIPAddress", ""), "publicIpAddress": ""})
            subnet = self._state.part(reference(about.get("subnet"))) or {}
            for text in prefixes(subnet):
                address, _, length = text.partition("/")
                subnets.append({"address": address, "prefix": length})
        mac = str(interface.properties.get("macAddress", "")).replace("-", "")
        return {
            "ipv4": {"ipAddress": addresses, "subnet": subnets},
            "ipv6": {"ipAddress": []},
            "macAddress": mac,
        }

    def identities(self, address: str) -> list[settings.Assigned]:
        """Return the identities of the machine at `address`; none when it is none."""
        machine = self._machine(address)
        given = (machine.document.get("identity") or {}) if machine is not None else {}
        found = []
        for id in given.get("userAssignedIdentities") or {}:
            resource = self._state.find(id)
            if resource is not None:
                known = resource.properties
                found.append(settings.Assigned(resource.id, known["clientId"], known["principalId"]))
        return found
