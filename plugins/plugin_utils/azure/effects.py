# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What changes of resources do to those who use them: what is lost, what restarts, what cannot be at all."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterable, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure import templates
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.tags import GROUPS
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.whatif import Change
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import Effect

_MACHINES, _DISKS = "microsoft.compute/virtualmachines", "microsoft.compute/disks"
_WITH_DATA = frozenset(
    {
        "microsoft.resources/resourcegroups",
        _DISKS,
        _MACHINES,
        "microsoft.storage/storageaccounts",
        "microsoft.storage/storageaccounts/blobservices",
        "microsoft.storage/storageaccounts/blobservices/containers",
        "microsoft.keyvault/vaults",
        "microsoft.keyvault/vaults/keys",
    }
)
_ACCESS = re.compile(
    r"microsoft\.(authorization/(roleassignments|roledefinitions)|managedidentity/.*|"
    r"network/(privateendpoints|privatednszones|virtualnetworkgateways|connections|localnetworkgateways).*)"
)
_RESTARTS: t.Final[Mapping[str, re.Pattern[str]]] = {
    _MACHINES: re.compile(
        r"properties\.(hardwareProfile|securityProfile\.encryptionAtHost|additionalCapab)", re.I
    ),
}
_REPLACED: t.Final[Mapping[str, re.Pattern[str]]] = {
    # Azure, "PropertyChangeNotAllowed": given when a machine is made, and never changed.
    _MACHINES: re.compile(
        r"zones|properties\.(storageProfile\.(imageReference|osDisk\.(createOption|diffDiskSettings))|"
        r"osProfile\.(computerName|adminUsername|customData|linuxConfiguration)|"
        r"securityProfile\.securityType|availabilitySet)",
        re.I,
    ),
    _DISKS: re.compile(r"zones|sku|properties\.(creationData|hyperVGeneration)", re.I),
    "microsoft.compute/virtualmachinescalesets": re.compile(
        r"zones|properties\.(orchestrationMode|platformFaultDomainCount|virtualMachineProfile\.priority)",
        re.I,
    ),
    "microsoft.network/loadbalancers": re.compile(r"sku|properties\.frontendIPConfigurations.*zones", re.I),
    "microsoft.storage/storageaccounts": re.compile(r"properties\.isHnsEnabled", re.I),
}
_QUORUM = ("etcd", "etcd_events", "control_plane")


def of_deletion(change: Change) -> frozenset[Effect]:
    """Return what the deletion of a resource does."""
    kind = change.type.lower()
    found: set[Effect] = {"deletes"}
    if kind in _WITH_DATA:
        found.add("wipes")
    if _ACCESS.fullmatch(kind):
        found.add("takes_access")
    return frozenset(found)


def restarts(change: Change) -> list[str]:
    """Return the changes of a machine's properties that restart it, empty when none does."""
    return _matching(change, _RESTARTS)


def replaced(change: Change) -> list[str]:
    """Return the changes that no resource takes: it would have to be replaced."""
    return _matching(change, _REPLACED)


def _matching(change: Change, patterns: Mapping[str, re.Pattern[str]]) -> list[str]:
    pattern = patterns.get(change.type.lower())
    if change.kind != "modify" or pattern is None:
        return []
    # What only goes from the template keeps the value that it has.
    return [one.text() for one in change.properties if one.after is not None and pattern.match(one.path)]


def impossible(changes: Iterable[Change], template: Mapping[str, t.Any]) -> list[str]:
    """Return what must not be done in one deployment, or cannot be done at all.

    Args:
        changes: that a deployment would make.
        template: of it, whose tags say in which groups machines are.
    """
    changes = list(changes)
    said = [
        f"{change.type.rpartition('/')[2]} {change.name} cannot be changed in place ({'; '.join(why)}): "
        "write back what it was, or take it out of the data, and put it in again under another name"
        for change in changes
        if (why := replaced(change))
    ]
    groups = groups_of_machines(template)
    for group in _QUORUM:
        names = sorted(
            change.name.partition(" ")[0]
            for change in changes
            if group in groups.get(change.name.partition(" ")[0].lower(), ())
            and (restarts(change) or (change.kind == "delete" and change.type.lower() == _MACHINES))
        )
        if len(names) > 1:
            said.append(
                f"{', '.join(names)} of {group} would be down at the same time, and {group} needs a "
                "majority: change one at a time, and let ironspan verify pass in between"
            )
    return said


def groups_of_machines(template: Mapping[str, t.Any]) -> dict[str, tuple[str, ...]]:
    """Return name of a machine, in lower case, to the groups that its tag names."""
    found = {}
    for one in templates.resources(template):
        if str(one.get("type")).lower() == _MACHINES:
            text = str((one.get("tags") or {}).get(GROUPS) or "")
            found[str(one.get("name")).lower()] = tuple(filter(None, text.split(",")))
    return found
