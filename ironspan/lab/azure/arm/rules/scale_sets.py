# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Scale sets in flexible orchestration: their instances are virtual machines."""

from __future__ import annotations

import copy
import secrets
from typing import Any

from ironspan.lab.azure.arm import ids
from ironspan.lab.azure.arm.errors import ArmError
from ironspan.lab.azure.arm.rules import compute
from ironspan.lab.azure.arm.rules.addresses import place
from ironspan.lab.azure.arm.rules.availability import check_quota, check_size, region_of
from ironspan.lab.azure.arm.rules.common import Rules, Write, guid, named, reference
from ironspan.lab.azure.arm.state import Resource, State

_INTERFACE = "Microsoft.Network/networkInterfaces"
_SUFFIX = "abcdefghjkmnpqrstuvwxyz0123456789"


def instances(state: State, id: str) -> list[Resource]:
    """Return the machines of a scale set, oldest first."""
    found = [
        one
        for one in state.of_type(compute.MACHINE)
        if ids.same(reference(one.properties.get("virtualMachineScaleSet")), id)
    ]
    return sorted(found, key=lambda one: (one.created, one.key))


def _preflight(write: Write) -> None:
    if write.properties.get("orchestrationMode") != "Flexible":
        raise ArmError(
            400,
            "InvalidParameter",
            "The lab knows orchestrationMode 'Flexible' only.",
            target="orchestrationMode",
        )
    sku = write.document.get("sku") or {}
    count = int(sku.get("capacity") or 0)
    profile = write.properties.get("virtualMachineProfile")
    if profile is None:
        return
    size = check_size(
        write.state,
        str(sku.get("name", "")),
        region_of(write.document),
        write.document.get("zones") or [],
    )
    domains = write.properties.get("platformFaultDomainCount")
    if size.gpus and domains not in (None, 1) and count > 200:
        raise ArmError(
            400, "InvalidParameter", "N-series sizes have at most 200 instances with several fault domains."
        )
    more = count - (len(instances(write.state, write.old.id)) if write.old is not None else 0)
    if more > 0:
        spot = str(profile.get("priority", "")).lower() == "spot"
        check_quota(write.state, size, more, spot, region_of(write.document))
    identity = str((write.document.get("identity") or {}).get("type", ""))
    if "SystemAssigned" in identity:
        raise ArmError(
            400,
            "InvalidParameter",
            "Flexible scale sets take user-assigned identities only.",
            target="identity.type",
        )


def _check(write: Write) -> None:
    for name in ("platformFaultDomainCount", "orchestrationMode"):
        before, after = write.kept("properties", name), write.properties.get(name)
        if before is not None and after is not None and before != after:
            raise ArmError(
                409, "PropertyChangeNotAllowed", f"Changing property '{name}' is not allowed.", target=name
            )


def _complete(write: Write) -> None:
    compute.identities(write)
    write.keep(uniqueId=guid(), timeCreated=write.state.stamp())
    write.default(platformFaultDomainCount=1, singlePlacementGroup=False)
    write.document.setdefault("sku", {}).setdefault("tier", "Standard")
    profile = (write.properties.get("virtualMachineProfile") or {}).get("osProfile") or {}
    profile.pop("customData", None)
    profile.pop("adminPassword", None)
    profile.setdefault("requireGuestProvisionSignal", True)


def _done(state: State, resource: Resource) -> None:
    """Make or take away instances until there are as many as wanted."""
    wanted = int((resource.document.get("sku") or {}).get("capacity") or 0)
    there = instances(state, resource.id)
    for number in range(len(there), wanted):
        _instance(state, resource, number)
    for one in there[wanted:]:
        remove(state, one)


def remove(state: State, machine: Resource) -> None:
    """Take an instance with all that is its own."""
    compute.RULES[compute.MACHINE].deleted(state, machine)
    state.resources.pop(machine.key, None)


def _instance(state: State, group: Resource, number: int) -> None:
    parsed = ids.parse(group.id)
    assert parsed is not None
    profile: dict[str, Any] = copy.deepcopy(group.properties.get("virtualMachineProfile") or {})
    zones = group.document.get("zones") or []
    suffix = "".join(secrets.choice(_SUFFIX) for _ in range(8))
    name = f"{parsed.name}_{suffix}"
    scope = f"{parsed.scope}/providers"
    id = f"{scope}/{compute.MACHINE}/{name}"
    links = []
    network = profile.pop("networkProfile", {}) or {}
    for about in named(network.get("networkInterfaceConfigurations")):
        links.append(_interface(state, group, f"{scope}/{_INTERFACE}/{name}-{about.get('name')}", about, id))
    written = dict(profile.get("osProfile") or {})
    prefix = written.pop("computerNamePrefix", parsed.name)
    written["computerName"] = f"{prefix}{suffix[:6]}"
    document: dict[str, Any] = {
        "id": id, "name": name, "type": compute.MACHINE, "location": group.document["location"],
        "tags": dict(group.document.get("tags") or {}),
        "properties": {
            **{key: one for key, one in profile.items() if key not in ("osProfile", "applicationProfile")},
            "hardwareProfile": {"vmSize": (group.document.get("sku") or {}).get("name")},
            "osProfile": written,
            "networkProfile": {"networkInterfaces": links},
            "virtualMachineScaleSet": {"id": group.id},
        },
    }  # fmt: skip
    if zones:
        document["zones"] = [zones[number % len(zones)]]
    if "identity" in group.document:
        document["identity"] = copy.deepcopy(group.document["identity"])
    document["properties"]["storageProfile"].setdefault("osDisk", {})["deleteOption"] = "Delete"
    own = ids.parse(id)
    assert own is not None
    compute.RULES[compute.MACHINE].complete(Write(state, own, document, None))
    document["properties"]["provisioningState"] = "Succeeded"
    machine = Resource(document, created=state.now() + number / 1000)
    state.resources[machine.key] = machine
    compute.RULES[compute.MACHINE].done(state, machine)


def _interface(state: State, group: Resource, id: str, about: dict[str, Any], machine: str) -> dict[str, Any]:
    properties = copy.deepcopy(about.get("properties") or {})
    for configuration in named(properties.get("ipConfigurations")):
        configuration["id"] = f"{id}/ipConfigurations/{configuration.get('name')}"
        place(state, configuration, id)
    properties.update(provisioningState="Succeeded", virtualMachine={"id": machine})
    state.resources[id.lower()] = Resource(
        {
            "id": id, "name": id.rpartition("/")[2], "type": _INTERFACE,
            "location": group.document["location"],
            "tags": dict(group.document.get("tags") or {}), "properties": properties,
        },
        created=state.now(),
    )  # fmt: skip
    return {"id": id, "properties": {"primary": True, "deleteOption": "Delete"}}


def _deleted(state: State, resource: Resource) -> None:
    for one in instances(state, resource.id):
        remove(state, one)


RULES = {
    "Microsoft.Compute/virtualMachineScaleSets": Rules(
        _preflight, _check, _complete, done=_done, deleted=_deleted
    )
}
