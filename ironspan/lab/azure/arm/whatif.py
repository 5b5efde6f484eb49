# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What-if: the difference between what is there and what a template says, with the noise that Azure's has.

Azure predicts from the template and from what it knows of a type. It leaves out what only it writes and most
defaults, but not all: what it is known to leave in is listed here, with the issue of
https://github.com/Azure/arm-template-whatif where people report it.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from ironspan.lab.azure.arm import kinds, schema
from ironspan.lab.azure.arm.state import Resource

Path = tuple[str, ...]
#: Type -> paths that what-if shows though nobody changed them; "*" stands for an item of a list.
_LEAKS: dict[str, tuple[tuple[str, str], ...]] = {
    "Microsoft.Network/virtualNetworks": (
        ("properties.subnets.*.properties.privateEndpointNetworkPolicies", "#284 #394"),
        ("properties.subnets.*.properties.privateLinkServiceNetworkPolicies", "#394"),
        ("properties.virtualNetworkPeerings", "#46 #393"),
        ("properties.privateEndpointVNetPolicies", "#393"),
    ),
    "Microsoft.Network/networkInterfaces": (
        ("properties.ipConfigurations.*.properties.privateIPAddressVersion", "#279"),
        ("properties.ipConfigurations.*.properties.primary", "#279"),
        ("properties.allowPort25Out", "#279"),
        ("properties.nicType", "#279"),
    ),
    "Microsoft.Network/privateEndpoints": (
        ("properties.ipVersionType", "#279"),
        ("properties.customNetworkInterfaceName", "#279"),
        ("properties.manualPrivateLinkServiceConnections", "#279"),
    ),
    "Microsoft.Network/networkSecurityGroups": (
        ("properties.securityRules.*.properties.sourceAddressPrefixes", "#60"),
        ("properties.securityRules.*.properties.destinationAddressPrefixes", "#60"),
    ),
    "Microsoft.Network/loadBalancers": (
        ("properties.inboundNatRules", "#279"),
        ("properties.frontendIPConfigurations.*.properties.privateIPAddressVersion", "#279"),
    ),
    "Microsoft.Compute/virtualMachines": (
        ("properties.osProfile.requireGuestProvisionSignal", "#6"),
        ("properties.osProfile.allowExtensionOperations", "#6"),
        ("properties.storageProfile.osDisk.managedDisk.id", "#6"),
        ("properties.storageProfile.osDisk.diskSizeGB", "#6"),
        ("properties.storageProfile.imageReference.exactVersion", "#6"),
    ),
    "Microsoft.Storage/storageAccounts": (
        ("properties.encryption.services", "#6"),
        ("sku.tier", "#6"),
    ),
    "Microsoft.KeyVault/vaults": (("properties.vaultUri", "#6"),),
}
_SAME_TEXT = ("id",)


def leaks(type: str) -> set[Path]:
    """Return the paths that what-if of a type shows though nobody changed them."""
    return {tuple(path.split(".")) for path, _ in _LEAKS.get(type, ())}


class Differ:
    """Compares documents of one type."""

    def __init__(self, type: str) -> None:
        kind = kinds.find(type)
        self._readonly = schema.readonly(kind.model)
        self._leaks = leaks(kind.type)

    def view(self, document: dict[str, Any], written: Any, after: Any) -> dict[str, Any]:
        """Return what what-if shows of a document: without what Azure knows to be its own.

        Args:
            document: What a GET answers.
            written: What was last sent.
            after: What the template says.
        """
        found: dict[str, Any] = self._pruned(document, written, after, ())
        return found

    def _pruned(self, value: Any, written: Any, after: Any, path: Path) -> Any:
        if isinstance(value, dict):
            written = written if isinstance(written, dict) else {}
            after = after if isinstance(after, dict) else {}
            return {
                name: self._pruned(one, written.get(name), after.get(name), (*path, name))
                for name, one in value.items()
                if name in after or self._shown(name, written, (*path, name))
            }
        if isinstance(value, list):
            return [
                self._pruned(one, _match(one, written, number), _match(one, after, number), (*path, "*"))
                for number, one in enumerate(value)
            ]
        return value

    def _shown(self, name: str, written: dict[str, Any], path: Path) -> bool:
        if path in self._leaks or path in (("id",), ("name",), ("type",)):
            return True
        return name in written and path not in self._readonly

    def delta(self, before: Any, after: Any, path: Path = ()) -> list[dict[str, Any]]:
        """Return the changes from one view to another, as what-if nests them."""
        found: list[dict[str, Any]] = []
        for name in sorted({*before, *after}):
            here = (*path, name)
            if path == () and name in ("id", "name", "type", "apiVersion"):
                continue
            if name not in after:
                found.append(_change(name, "Delete", before[name], None))
            elif name not in before:
                kind = "NoEffect" if here in self._readonly else "Create"
                found.append(_change(name, kind, None, after[name]))
            else:
                found += self._value(name, before[name], after[name], here)
        return found

    def _value(self, name: str, before: Any, after: Any, path: Path) -> list[dict[str, Any]]:
        if before == after or (name in _SAME_TEXT and str(before).lower() == str(after).lower()):
            return []
        if path in self._readonly:
            return [_change(name, "NoEffect", before, after)]
        if isinstance(before, dict) and isinstance(after, dict):
            inner = self.delta(before, after, path)
            return [{**one, "path": f"{name}.{one['path']}"} for one in inner]
        if isinstance(before, list) and isinstance(after, list):
            children = self._items(before, after, (*path, "*"))
            return [{**_change(name, "Array", before, after), "children": children}] if children else []
        return [_change(name, "Modify", before, after)]

    def _items(self, before: list[Any], after: list[Any], path: Path) -> list[dict[str, Any]]:
        """Compare lists position by position, as Azure does: another order is a change."""
        found = []
        for number in range(max(len(before), len(after))):
            if number >= len(after):
                found.append(_change(str(number), "Delete", before[number], None))
            elif number >= len(before):
                found.append(_change(str(number), "Create", None, after[number]))
            elif isinstance(before[number], dict) and isinstance(after[number], dict):
                inner = self.delta(before[number], after[number], path)
                if inner:
                    found.append(
                        {**_change(str(number), "Modify", before[number], after[number]), "children": inner}
                    )
            elif before[number] != after[number]:
                found.append(_change(str(number), "Modify", before[number], after[number]))
        return found


def _match(item: Any, items: Any, number: int) -> Any:
    """Return the item of another list that an item is compared with: of the same name, else at its place."""
    if not isinstance(items, list):
        return None
    if isinstance(item, dict) and "name" in item:
        for one in items:
            if isinstance(one, dict) and one.get("name") == item["name"]:
                return one
    there = items[number] if number < len(items) else None
    named = isinstance(item, dict) and isinstance(there, dict) and "name" in item and "name" in there
    return None if named else there


def _change(path: str, kind: str, before: Any, after: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"path": path, "propertyChangeType": kind}
    if before is not None:
        found["before"] = before
    if after is not None:
        found["after"] = after
    return found


def compare(
    resource: Resource | None, body: dict[str, Any], baseline: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the change of one resource: {"changeType", "before", "after", "delta"}.

    Args:
        resource: What is there; None for nothing.
        body: What the template says, with id, name and type.
        baseline: {"document", "written"} from right after the last deployment of a stack: what differed
            then is noise, and is left out.
    """
    if resource is None:
        return {"changeType": "Create", "before": None, "after": body, "delta": []}
    differ = Differ(resource.type)
    before = differ.view(copy.deepcopy(resource.document), resource.written, body)
    found = differ.delta(before, body)
    if baseline is not None and found:
        then = differ.view(copy.deepcopy(baseline["document"]), baseline["written"], baseline["written"])
        noise = differ.delta(then, baseline["written"])
        found = without(found, noise)
    real = [one for one in found if one["propertyChangeType"] != "NoEffect"]
    return {
        "changeType": "Modify" if real else "NoChange",
        "before": before,
        "after": {**body, "id": resource.id},
        "delta": found,
    }


def without(delta: Sequence[dict[str, Any]], noise: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the changes of `delta` that are not in `noise`, children one by one."""
    by_path = {one["path"]: one for one in noise}
    found = []
    for one in delta:
        same = by_path.get(one["path"])
        if same == one:
            continue
        if same is not None and "children" in one and "children" in same:
            children = without(one["children"], same["children"])
            if not children:
                continue
            one = {**one, "children": children}
        found.append(one)
    return found
