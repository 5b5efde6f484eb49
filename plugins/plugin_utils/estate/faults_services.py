# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Faults of keys, storage, endpoints, and of what exists already."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.catalogue import redundancies
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.endpoints import ZONES, zone_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.faults import Fault, Given, Judge, Path
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.model import CONTROL_PLANE, ETCD
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.values import (
    EXISTING,
    MACHINES,
    POOLS,
    REGION,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.formats import fault_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest

_STORAGE, _ENDPOINTS, _VAULT = "azure_storage", "azure_endpoints", "azure_vault"
_TYPES = {
    "virtual_network": "Microsoft.Network/virtualNetworks",
    "vault": "Microsoft.KeyVault/vaults",
    "backup_account": "Microsoft.Storage/storageAccounts",
}
_SERVICES = {
    "blob": "Microsoft.Storage/storageAccounts",
    "dfs": "Microsoft.Storage/storageAccounts",
    "vault": "Microsoft.KeyVault/vaults",
    "registry": "Microsoft.ContainerRegistry/registries",
    "postgresqlServer": "Microsoft.DBforPostgreSQL/flexibleServers",
    "Sql": "Microsoft.DocumentDB/databaseAccounts",
}
_KEPT_SUBNETS = ("gatewaysubnet", "azurefirewallsubnet", "azurebastionsubnet", "routeserversubnet")
_ZONE = "Microsoft.Network/privateDnsZones"


def _is(identifier: str, kind: str) -> bool:
    start, _, name = identifier.lower().rpartition("/")
    return bool(name) and start.endswith(f"/providers/{kind.lower()}")


def existing(given: Given) -> Iterator[Fault]:
    """What exists is of the kind that it is written for."""
    entry = given.values[EXISTING]
    for key, kind in _TYPES.items():
        if entry[key] and not _is(entry[key], kind):
            yield (EXISTING, key), f"is no id of {kind}", f"write .../providers/{kind}/NAME"
    useful = {zone_of(group) for group in ZONES} | {
        str(given.values.get("site_api_endpoint")).rpartition(":")[0]
    }
    for zone, identifier in entry["dns_zones"].items():
        if not _is(identifier, _ZONE) or not identifier.lower().endswith(f"/{zone}"):
            yield (EXISTING, "dns_zones", zone), f"is no id of the zone {zone}", f"write .../{_ZONE}/{zone}"
        elif zone not in useful:
            near = nearest(zone, useful)
            remedy = f"write {near}" if near else f"write one of {', '.join(sorted(useful))}"
            what = "is no zone that private endpoints or the API have names in"
            yield (EXISTING, "dns_zones", zone), what, remedy
    if entry["subnets"] and not entry["virtual_network"]:
        yield (
            (EXISTING, "subnets"),
            "is written, and virtual_network is not",
            "write virtual_network, or take it out",
        )
    for what in entry["subnets"]:
        if what not in ("control", "nodes", "endpoints"):
            near = nearest(what, ("control", "nodes", "endpoints"))
            remedy = f"write {near}" if near else "write control, nodes or endpoints"
            yield (EXISTING, "subnets", what), "is no subnet that has a name of its own", remedy
        elif str(entry["subnets"][what]).lower() in _KEPT_SUBNETS:
            message = f"{entry['subnets'][what]} is Azure's own, and no machine can be in it"
            yield (EXISTING, "subnets", what), message, "write the subnet that the machines are in"
    named = [str(name).lower() for name in entry["subnets"].values()]
    for what, name in entry["subnets"].items():
        if named.count(str(name).lower()) > 1:
            message = f"{name} is the subnet of more than one of them"
            yield (EXISTING, "subnets", what), message, "write the name of each one's own"
            break


def vault(given: Given) -> Iterator[Fault]:
    """Every key has somebody who uses it."""
    entry = given.values[_VAULT]
    keys = entry["keys"]
    members = given.values[MACHINES]
    if "pki" in keys and not entry["administrators"]:
        yield (
            (_VAULT, "keys"),
            "has pki, and administrators, who would use it, is empty",
            "write administrators",
        )
    if entry["administrators"] and "pki" not in keys:
        message = "is written, and keys has no pki, which they would use"
        yield (_VAULT, "administrators"), message, "add pki to keys, or take it out"
    if entry["name"] and not keys and not given.values[EXISTING]["vault"]:
        message = "is written, and keys is empty, so there is no vault"
        yield (_VAULT, "name"), message, "write keys, or take it out"
    if given.values[EXISTING]["vault"] and not keys:
        remedy = "write keys, or take azure_existing.vault out"
        yield (_VAULT, "keys"), "is empty, and azure_existing.vault is written", remedy
    if given.values[EXISTING]["vault"] and entry["name"]:
        yield (_VAULT, "name"), "is written, and azure_existing.vault names another", "write one of them"
    if given.values.get("control_plane_secrets_encryption") == "key_vault" and members and "kms" not in keys:
        message = "has no kms, and control_plane_secrets_encryption is key_vault"
        yield (_VAULT, "keys"), message, "add kms"


def backup(given: Given) -> Iterator[Fault]:
    """One account, and the site's own copies of its data."""
    entry, there = given.values["azure_backup"], given.values[EXISTING]["backup_account"]
    if not entry["container"] and (there or entry["account"]):
        what = "azure_existing.backup_account" if there else "account"
        remedy = f"write container, or take {what} out"
        yield ("azure_backup", "container"), f"is empty, and {what} is written", remedy
    for key in ("collectors", "readers"):
        if entry[key] and not entry["container"]:
            message = "is written, and container is empty, so there is no account"
            yield ("azure_backup", key), message, "write container, or take it out"
    if entry["container"] and not there:
        yield from _copies(given, ("azure_backup", "redundancy"), entry["redundancy"])
    if there and entry["account"]:
        message = "is written, and azure_existing.backup_account names another"
        yield ("azure_backup", "account"), message, "write one of them"


def _copies(given: Given, path: Path, redundancy: str) -> Iterator[Fault]:
    """Copies are in zones of the region, or in the region that Azure has made its partner."""
    region = given.values[REGION]
    if redundancy not in (known := redundancies(region)):
        lacks = "availability zones" if redundancy in ("ZRS", "GZRS") and "ZRS" not in known else "a partner"
        message = f"is {redundancy}, and {region} has not got {lacks} for that"
        yield path, message, f"write redundancy: {'ZRS' if 'ZRS' in known else 'GRS'}"


def storage(given: Given) -> Iterator[Fault]:
    """Accounts have containers, somebody who may use them, and rules that follow each other."""
    users = _users(given)
    said: dict[str, str] = {}
    for index, entry in enumerate(given.values[_STORAGE]):
        path = (_STORAGE, index)
        if (other := said.setdefault(entry["name"], f"{_STORAGE}[{index}]")) != f"{_STORAGE}[{index}]":
            yield (*path, "name"), f"{entry['name']} is the name of {other} too", "write another one"
        if not entry["containers"] and not entry["existing"]:
            yield (*path, "containers"), "is empty", "write at least one"
        if not entry["existing"] and not entry["readers"] and not entry["writers"]:
            yield (
                (*path, "name"),
                "has neither readers nor writers, so nobody may use it",
                "write readers or writers",
            )
        if entry["existing"] and (entry["account"] or entry["containers"]):
            yield (
                (*path, "existing"),
                "is written, and containers of what exists are its owner's",
                "write existing alone",
            )
        for key in ("cool_after_days", "delete_after_days"):
            if entry["existing"] and entry[key]:
                remedy = "take it out: rules of what exists are its owner's"
                yield (*path, key), "is written beside existing", remedy
        if not entry["existing"]:
            yield from _copies(given, (*path, "redundancy"), entry["redundancy"])
        if entry["name"] in ("vault", "backup"):
            message = f"is {entry['name']}, which the estate's own endpoint is called"
            yield (*path, "name"), message, "write another one"
        if entry["existing"] and not _is(entry["existing"], _SERVICES["blob"]):
            yield (*path, "existing"), "is no id of a storage account", f"write .../{_SERVICES['blob']}/NAME"
        for key in ("readers", "writers"):
            for who in entry[key]:
                if who not in users and fault_of(who, "uuid"):
                    near = nearest(who, users)
                    message = (
                        f"{who} is no pool, set or group of machines of the estate, and no object identifier"
                    )
                    yield (*path, key), message, f"write {near}" if near else "write one that there is"
        cool, delete = entry["cool_after_days"], entry["delete_after_days"]
        if cool and delete and delete <= cool:
            message = f"{delete} is not after the {cool} days of cool_after_days"
            yield (*path, "delete_after_days"), message, "write more days, or leave one of them out"


def _users(given: Given) -> set[str]:
    found = {entry["name"] for entry in given.values[POOLS]}
    for entry in given.values[MACHINES]:
        numbered = (f"{entry['name']}-{number + 1}" for number in range(entry["count"]))
        found |= {*entry["groups"], *numbered} if entry["groups"] else {entry["name"], *numbered}
    return found


def accounts(given: Given) -> Iterator[Fault]:
    """No two accounts have one name."""
    if given.estate is None:
        return
    said = {given.estate.backup.account: "azure_backup"} if given.estate.backup else {}
    for index, one in enumerate(given.estate.storage):
        where = f"{_STORAGE}[{index}]"
        if (other := said.setdefault(one.account, where)) != where:
            yield (_STORAGE, index, "account"), f"{one.account} is that of {other} too", "write another one"


def endpoints(given: Given) -> Iterator[Fault]:
    """A part of a service that the resource has, and a name of its own."""
    taken = {"vault": "the vault", "backup": "the backup"}
    taken |= {
        name: f"{_STORAGE}.{name}"
        for one in given.values[_STORAGE]
        for name in (one["name"], f"{one['name']}-dfs")
    }
    reached = _reached(given)
    for index, entry in enumerate(given.values[_ENDPOINTS]):
        about = (entry["resource"].lower(), entry["group"])
        if (first := reached.setdefault(about, f"{_ENDPOINTS}[{index}]")) != f"{_ENDPOINTS}[{index}]":
            message = f"has an endpoint of this group already, that of {first}"
            yield (_ENDPOINTS, index, "resource"), message, "take one of them out"
        kind = _SERVICES.get(entry["group"])
        if kind and not _is(entry["resource"], kind):
            message = f"is no id of {kind}, which has the part {entry['group']}"
            yield (
                (_ENDPOINTS, index, "resource"),
                message,
                f"write .../providers/{kind}/NAME, or another group",
            )
        where = f"{_ENDPOINTS}[{index}]"
        if (other := taken.setdefault(entry["name"], where)) != where:
            yield (
                (_ENDPOINTS, index, "name"),
                f"{entry['name']} is the name of the endpoint of {other}",
                "write another one",
            )


def _reached(given: Given) -> dict[tuple[str, str], str]:
    """Return what exists and has an endpoint of the estate's without being asked for it."""
    existing = given.values[EXISTING]
    found = {(existing["vault"].lower(), "vault"): f"{EXISTING}.vault"}
    found[existing["backup_account"].lower(), "blob"] = f"{EXISTING}.backup_account"
    for index, entry in enumerate(given.values[_STORAGE]):
        for group in ("blob", "dfs")[: 1 + entry["hierarchical"]]:
            found[entry["existing"].lower(), group] = f"{_STORAGE}[{index}].existing"
    return found


def machines_use_keys(given: Given) -> Iterator[Fault]:
    """A key that machines use needs machines."""
    groups = {group for entry in given.values[MACHINES] for group in entry["groups"] or [entry["name"]]}
    for purpose, group in (("kms", CONTROL_PLANE), ("backup", ETCD)):
        if groups and purpose in given.values[_VAULT]["keys"] and group not in groups:
            message = f"has {purpose}, and no machine is in the group {group}, so nobody may use it"
            yield (_VAULT, "keys"), message, f"leave {purpose} out, or write machines of {group}"


FIRST: tuple[Judge, ...] = (existing,)
JUDGES: tuple[Judge, ...] = (vault, backup, storage, accounts, endpoints, machines_use_keys)
