# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Virtual machines of etcd, control plane and steady workers, with their interfaces and etcd's disks."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.tags import GROUPS, HOST
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.build import Builder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.catalogue import sizes
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.model import (
    CONTROL_PLANE,
    NODES,
    Disk,
    Estate,
    Machine,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.network import BACKEND, balancer_id

_COMPUTE = "Microsoft.Compute"
_LUN = 0
"""Of etcd's disk, the only one that is attached."""
_ATTACHED = (f"/dev/disk/azure/data/by-lun/{_LUN}", f"/dev/disk/azure/scsi1/lun{_LUN}")
"""Its names: of azure-vm-utils (NVMe, and SCSI in later releases), and of waagent's rules for udev (SCSI)."""
_LOCAL = ("/dev/disk/azure/local/by-index/1",)
"""The first of the machine's own NVMe disks; azure-vm-utils numbers them on sizes of version 6 and later."""
_FAULT_DOMAINS = 2
"""Of an availability set: as many as every region has."""


def add_machines(build: Builder) -> None:
    """Add all of them."""
    for machine in build.estate.machines:
        _machine(build, machine)


def host_tags(name: str, groups: tuple[str, ...]) -> dict[str, str]:
    """Return the tags from which the inventory plugin makes a host."""
    return {HOST: name, GROUPS: ",".join(groups)}


def os_profile(estate: Estate, computer: t.Mapping[str, str]) -> dict[str, t.Any]:
    """Return how machines are logged in to: a key, never a password; no secret in any of it.

    Args:
        estate: the estate.
        computer: the name of the computer, as machines or scale sets write it.
    """
    path = f"/home/{estate.user}/.ssh/authorized_keys"
    return {
        **computer,
        "adminUsername": estate.user,
        "linuxConfiguration": {
            "disablePasswordAuthentication": True,
            "provisionVMAgent": True,
            # Packages come from the mirror, and restarts are an operation's.
            "patchSettings": {"patchMode": "ImageDefault", "assessmentMode": "ImageDefault"},
            "ssh": {"publicKeys": [{"path": path, "keyData": key} for key in estate.authorized_keys]},
        },
    }


def security_profile(estate: Estate, size: str, secure_boot: bool) -> dict[str, t.Any]:
    """Return Trusted Launch, where the size has it, and encryption on the machine's host."""
    profile: dict[str, t.Any] = {"encryptionAtHost": estate.encryption_at_host}
    known = sizes().get(size)
    if known is None or known.trusted_launch:
        profile["securityType"] = "TrustedLaunch"
        profile["uefiSettings"] = {"secureBootEnabled": secure_boot, "vTpmEnabled": True}
    return profile


def etcd_devices(machine: Machine) -> tuple[str, ...]:
    """Return the paths that the disk of etcd's data may have on a machine; none where it is no member."""
    if machine.disk:
        return _ATTACHED
    return _LOCAL if machine.local_disk else ()


def controller_of(size: str) -> dict[str, str]:
    """Return how disks are attached, for sizes that attach them by NVMe only."""
    known = sizes().get(size)
    return {"diskControllerType": "NVMe"} if known is not None and known.controller == "nvme" else {}


def _machine(build: Builder, machine: Machine) -> None:
    estate = build.estate
    tags = host_tags(machine.name, machine.groups)
    zoned = {"zones": [machine.zone]} if machine.zone else {}
    interface = _interface(build, machine, tags)
    disk = _disk(build, machine, machine.disk, tags, zoned) if machine.disk else ""
    os_disk = {
        "name": estate.name_of(f"os-{machine.name}"),
        "createOption": "FromImage",
        "caching": "ReadWrite",
        "deleteOption": "Delete",
        "diskSizeGB": machine.os_disk_gib,
        "managedDisk": {"storageAccountType": "Premium_LRS"},
    }
    data = {
        "lun": _LUN,
        "createOption": "Attach",
        # Premium SSD v2 and Ultra refuse any cache; the data outlive the machine.
        "caching": "None",
        "deleteOption": "Detach",
        "managedDisk": {"id": disk},
    }
    properties: dict[str, t.Any] = {
        "hardwareProfile": {"vmSize": machine.size},
        "storageProfile": {
            "imageReference": estate.image.reference,
            "osDisk": os_disk,
            "dataDisks": [data] if disk else [],
            **controller_of(machine.size),
        },
        "osProfile": os_profile(estate, {"computerName": machine.name}),
        "networkProfile": {
            "networkInterfaces": [
                {"id": interface, "properties": {"primary": True, "deleteOption": "Detach"}}
            ]
        },
        "securityProfile": security_profile(estate, machine.size, machine.secure_boot),
        "diagnosticsProfile": {"bootDiagnostics": {"enabled": True}},
    }
    fabric = _fabric(build, machine.fabric) if machine.fabric else ""
    if fabric:
        properties["availabilitySet"] = {"id": fabric}
    if machine.disk and machine.disk.kind == "ultra":
        properties["additionalCapabilities"] = {"ultraSSDEnabled": True}
    build.add(
        f"{_COMPUTE}/virtualMachines",
        machine.name,
        properties,
        depends=[interface, disk, fabric],
        tags=tags,
        more={
            "identity": {"type": "UserAssigned", "userAssignedIdentities": {machine.identity: {}}},
            **zoned,
        },
    )


def _fabric(build: Builder, name: str) -> str:
    """Return the id of an availability set: Azure puts its machines into one partition of InfiniBand."""
    kind, called = f"{_COMPUTE}/availabilitySets", build.estate.name_of(f"fabric-{name}")
    if (made := build.id_of(kind, called)) in build.ids:
        return made
    domains = {"platformFaultDomainCount": _FAULT_DOMAINS, "platformUpdateDomainCount": 1}
    return build.add(kind, called, domains, more={"sku": {"name": "Aligned"}})


def _interface(build: Builder, machine: Machine, tags: t.Mapping[str, str]) -> str:
    estate = build.estate
    address: dict[str, t.Any] = {
        "primary": True,
        "privateIPAddressVersion": "IPv4",
        "privateIPAllocationMethod": "Static",
        "privateIPAddress": machine.address,
        "subnet": {"id": estate.subnets[machine.subnet].id},
    }
    if CONTROL_PLANE in machine.groups:
        pool = f"{balancer_id(estate)}/backendAddressPools/{BACKEND}"
        address["loadBalancerBackendAddressPools"] = [{"id": pool}]
    return build.add(
        "Microsoft.Network/networkInterfaces",
        estate.name_of(f"nic-{machine.name}"),
        {
            "ipConfigurations": [{"name": "primary", "properties": address}],
            "enableAcceleratedNetworking": True,
            # A node's interface has to take packets that are for its pods.
            "enableIPForwarding": bool(estate.pods and {NODES, CONTROL_PLANE} & {*machine.groups}),
        },
        tags=tags,
    )


def _disk(
    build: Builder, machine: Machine, disk: Disk, tags: t.Mapping[str, str], zoned: t.Mapping[str, t.Any]
) -> str:
    return build.add(
        f"{_COMPUTE}/disks",
        build.estate.name_of(f"etcd-{machine.name}"),
        {
            "creationData": {"createOption": "Empty", "logicalSectorSize": 4096},
            "diskSizeGB": disk.gib,
            "diskIOPSReadWrite": disk.iops,
            "diskMBpsReadWrite": disk.mbps,
            "encryption": {"type": "EncryptionAtRestWithPlatformKey"},
            "networkAccessPolicy": "DenyAll",
            "publicNetworkAccess": "Disabled",
        },
        tags=tags,
        more={"sku": {"name": disk.sku}, **zoned},
    )
