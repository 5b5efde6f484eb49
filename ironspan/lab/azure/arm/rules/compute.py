# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Virtual machines and disks."""

from __future__ import annotations

from typing import Any

from ironspan.lab.azure.arm import ids
from ironspan.lab.azure.arm.errors import ArmError
from ironspan.lab.azure.arm.rules.availability import check_quota, check_size, region_of
from ironspan.lab.azure.arm.rules.common import Rules, Write, check_name, guid, named, reference
from ironspan.lab.azure.arm.state import Resource, State

MACHINE, DISK = "Microsoft.Compute/virtualMachines", "Microsoft.Compute/disks"
_NAME = r"[^_\\/\"\[\]:|<>+=;,?*@&\s][^\\/\"\[\]:|<>+=;,?*@&\s]{0,63}(?<![.-])"
_DISK_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}"
#: What cannot be changed once a machine is there.
_FIXED = (("zones",), ("properties", "osProfile", "computerName"), ("properties", "osProfile", "customData"),
          ("properties", "osProfile", "adminUsername"), ("properties", "osProfile", "linuxConfiguration"),
          ("properties", "priority"), ("properties", "storageProfile", "imageReference"),
          ("properties", "securityProfile", "securityType"))  # fmt: skip


def _machine_preflight(write: Write) -> None:
    check_name(write, _NAME)
    profile = write.properties.get("hardwareProfile") or {}
    if write.old is None and "vmSize" not in profile and not write.properties.get("virtualMachineScaleSet"):
        raise ArmError(
            400,
            "InvalidParameter",
            "Required parameter 'vmSize' is missing (null).",
            target="hardwareProfile",
        )
    region, zones = region_of(write.document), write.document.get("zones") or []
    name = str(profile.get("vmSize", ""))
    if name and (
        write.old is None
        or str(write.kept("properties", "hardwareProfile", "vmSize")).lower() != name.lower()
    ):
        size = check_size(write.state, name, region, zones)
        spot = str(write.properties.get("priority", "")).lower() == "spot"
        check_quota(write.state, size, 1, spot, region)
    security = write.properties.get("securityProfile") or {}
    if (
        security.get("encryptionAtHost")
        and "Microsoft.Compute/EncryptionAtHost" in write.state.settings.features
    ):
        raise ArmError(
            400,
            "InvalidParameter",
            "The property 'securityProfile.encryptionAtHost' is not valid because the "
            "'Microsoft.Compute/EncryptionAtHost' feature is not enabled for this subscription.",
            target="securityProfile.encryptionAtHost",
        )
    for disk in named((write.properties.get("storageProfile") or {}).get("dataDisks")):
        kind = str((disk.get("managedDisk") or {}).get("storageAccountType", ""))
        if kind in ("PremiumV2_LRS", "UltraSSD_LRS") and str(disk.get("caching", "None")).lower() != "none":
            raise ArmError(
                400,
                "InvalidParameter",
                f"Disks of type {kind} only support caching 'None'.",
                target="dataDisk.caching",
            )


def _machine_check(write: Write) -> None:
    _refuse_changes(write)
    for one in named((write.properties.get("networkProfile") or {}).get("networkInterfaces")):
        interface = write.state.find(reference(one))
        owner = reference(interface.properties.get("virtualMachine")) if interface is not None else ""
        if interface is not None and owner and not ids.same(owner, write.id.text) and write.state.find(owner):
            raise ArmError(
                400,
                "NicInUse",
                f"Network Interface {interface.id} is used by existing VM {owner}.",
                target=interface.id,
            )
    zones = write.document.get("zones") or []
    for disk in named((write.properties.get("storageProfile") or {}).get("dataDisks")):
        _check_disk(write, disk, zones)


def _check_disk(write: Write, disk: dict[str, Any], zones: list[str]) -> None:
    id = reference(disk.get("managedDisk"))
    found = write.state.find(id) if id else None
    if found is None:
        return
    owner = str(found.document.get("managedBy") or "")
    if owner and not ids.same(owner, write.id.text) and write.state.find(owner) is not None:
        raise ArmError(
            409,
            "ConflictingUserInput",
            f"Disk '{id}' cannot be attached as the disk is already owned by VM '{owner}'.",
            target=id,
        )
    kind = (found.document.get("sku") or {}).get("name")
    if kind in ("PremiumV2_LRS", "UltraSSD_LRS") and str(disk.get("caching", "None")).lower() != "none":
        raise ArmError(
            400, "InvalidParameter", f"Disks of type {kind} only support caching 'None'.", target="caching"
        )
    if (found.document.get("zones") or []) != zones:
        raise ArmError(
            400,
            "BadRequest",
            f"Disk {id} cannot be attached to the VM because it is not in zone '{','.join(zones)}'.",
            target=id,
        )


def _refuse_changes(write: Write) -> None:
    if write.old is None:
        return
    for path in _FIXED:
        before: Any = write.old.written
        after: Any = write.document
        for name in path:
            before = before.get(name) if isinstance(before, dict) else None
            after = after.get(name) if isinstance(after, dict) else None
        if before is not None and after is not None and before != after and not _covers(after, before):
            where = ".".join(one for one in path if one != "properties")
            raise ArmError(
                409, "PropertyChangeNotAllowed", f"Changing property '{where}' is not allowed.", target=where
            )


def _covers(whole: Any, part: Any) -> bool:
    """Whether `whole` says what `part` says, and perhaps more."""
    if isinstance(whole, dict) and isinstance(part, dict):
        return all(name in whole and _covers(whole[name], one) for name, one in part.items())
    if isinstance(whole, list) and isinstance(part, list):
        return len(whole) == len(part) and all(_covers(*pair) for pair in zip(whole, part, strict=True))
    return bool(whole == part)


def identities(write: Write) -> None:
    """Fill in what Azure knows of a resource's identities."""
    for id in (write.document.get("identity") or {}).get("userAssignedIdentities") or {}:
        found = write.state.find(id)
        known = found.properties if found is not None else {}
        write.document["identity"]["userAssignedIdentities"][id] = {
            name: known[name] for name in ("principalId", "clientId") if name in known
        }


def _machine_complete(write: Write) -> None:
    identities(write)
    write.keep(vmId=guid(), timeCreated=write.state.stamp())
    storage = write.properties.setdefault("storageProfile", {})
    storage.setdefault("dataDisks", [])
    image = storage.get("imageReference")
    if isinstance(image, dict) and "offer" in image:
        image["exactVersion"] = (
            "24.04.202611010" if image.get("version") == "latest" else str(image.get("version"))
        )
    system = storage.setdefault("osDisk", {"createOption": "FromImage"})
    system.setdefault("name", f"{write.id.name}_OsDisk_1")
    system.setdefault("osType", "Linux")
    system.setdefault("diskSizeGB", 30)
    system.setdefault("deleteOption", "Detach")
    if not system.get("diffDiskSettings"):
        managed = system.setdefault("managedDisk", {})
        managed.setdefault("storageAccountType", "Premium_LRS")
        managed["id"] = f"{write.id.scope}/providers/{DISK}/{system['name']}"
    for disk in named(storage["dataDisks"]):
        found = write.state.find(reference(disk.get("managedDisk")))
        disk.setdefault("toBeDetached", False)
        disk.setdefault("deleteOption", "Detach")
        if found is not None:
            disk.setdefault("diskSizeGB", found.properties.get("diskSizeGB"))
            disk["name"] = found.document["name"]
            disk["managedDisk"].setdefault(
                "storageAccountType", (found.document.get("sku") or {}).get("name")
            )
    if "osProfile" in write.properties:
        profile = write.properties["osProfile"]
        profile.pop("customData", None)  # written, never shown
        profile.pop("adminPassword", None)
        profile.setdefault("requireGuestProvisionSignal", True)
        profile.setdefault("allowExtensionOperations", True)
        profile.setdefault("secrets", [])
        profile.setdefault("linuxConfiguration", {}).setdefault("provisionVMAgent", True)


def _machine_done(state: State, resource: Resource) -> None:
    storage = resource.properties.get("storageProfile", {})
    attached = [reference(one.get("managedDisk")) for one in named(storage.get("dataDisks"))]
    system = storage.get("osDisk", {}).get("managedDisk", {})
    if system.get("id") and state.find(system["id"]) is None:
        name = system["id"].rpartition("/")[2]
        state.resources[system["id"].lower()] = Resource(
            {
                "id": system["id"], "name": name, "type": DISK, "location": resource.document["location"],
                "zones": resource.document.get("zones") or [],
                "sku": {"name": system.get("storageAccountType")},
                "properties": {
                    "provisioningState": "Succeeded", "diskSizeGB": storage["osDisk"].get("diskSizeGB"),
                    "osType": "Linux", "creationData": {"createOption": "FromImage"},
                },
            },
            created=state.now(),
        )  # fmt: skip
    attached.append(str(system.get("id", "")))
    for disk in state.of_type(DISK):
        if any(ids.same(disk.id, one) for one in attached):
            disk.document["managedBy"] = resource.id
            disk.properties["diskState"] = "Attached"
        elif ids.same(disk.document.get("managedBy"), resource.id):
            disk.document.pop("managedBy")
            disk.properties["diskState"] = "Unattached"
    for one in named(resource.properties.get("networkProfile", {}).get("networkInterfaces")):
        interface = state.find(reference(one))
        if interface is not None:
            interface.properties["virtualMachine"] = {"id": resource.id}
    resource.power = resource.power or "running"


def _machine_deleted(state: State, resource: Resource) -> None:
    storage = resource.properties.get("storageProfile", {})
    gone = [
        reference(one.get("managedDisk"))
        for one in (*named(storage.get("dataDisks")), storage.get("osDisk", {}))
        if one.get("deleteOption") == "Delete"
    ]
    for disk in state.of_type(DISK):
        if ids.same(disk.document.get("managedBy"), resource.id):
            disk.document.pop("managedBy")
            disk.properties["diskState"] = "Unattached"
            if any(ids.same(disk.id, one) for one in gone):
                state.resources.pop(disk.key)
    for one in named(resource.properties.get("networkProfile", {}).get("networkInterfaces")):
        interface = state.find(reference(one))
        if interface is not None:
            interface.properties.pop("virtualMachine", None)
            if one.get("properties", {}).get("deleteOption") == "Delete":
                state.resources.pop(interface.key)


def _disk_preflight(write: Write) -> None:
    check_name(write, _DISK_NAME)
    kind = (write.document.get("sku") or {}).get("name")
    if kind in ("PremiumV2_LRS", "UltraSSD_LRS") and not write.document.get("zones"):
        raise ArmError(
            400,
            "InvalidParameter",
            f"Disks of type {kind} must be zonal: 'zones' is missing.",
            target="zones",
        )
    size, before = write.properties.get("diskSizeGB"), write.kept("properties", "diskSizeGB")
    if isinstance(size, int) and isinstance(before, int) and size < before:
        raise ArmError(
            409,
            "OperationNotAllowed",
            f"Shrinking a disk from {before} GB to {size} GB is not supported.",
            target="diskSizeGB",
        )


def _disk_complete(write: Write) -> None:
    write.keep(uniqueId=guid(), timeCreated=write.state.stamp(), diskState="Unattached")
    size = int(write.properties.get("diskSizeGB") or 0)
    write.properties["diskSizeBytes"] = size << 30
    write.default(
        encryption={"type": "EncryptionAtRestWithPlatformKey"}, networkAccessPolicy="AllowAll",
        publicNetworkAccess="Enabled", diskIOPSReadWrite=3000, diskMBpsReadWrite=125,
    )  # fmt: skip
    if "sku" in write.document:
        write.document["sku"]["tier"] = str(write.document["sku"].get("name", "")).partition("_")[0]
    managed = write.kept("managedBy")
    if managed:
        write.document["managedBy"] = managed


def _disk_deletable(state: State, resource: Resource) -> None:
    owner = str(resource.document.get("managedBy") or "")
    if owner and state.find(owner) is not None:
        raise ArmError(
            409,
            "OperationNotAllowed",
            f"Disk {resource.document['name']} is attached to VM {owner}.",
            target=resource.document["name"],
        )


RULES = {
    MACHINE: Rules(
        _machine_preflight, _machine_check, _machine_complete, done=_machine_done, deleted=_machine_deleted
    ),
    DISK: Rules(_disk_preflight, complete=_disk_complete, deletable=_disk_deletable),
}
