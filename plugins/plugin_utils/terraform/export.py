# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Writes what an estate has as ``import`` blocks of Terraform, so that a team can leave. Asks nobody.

Ids are in the form that the provider azurerm 4.x imports; where it has a form of its own, that is said.
"""

from __future__ import annotations

import json
import re
import typing as t
from collections.abc import Callable, Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure import templates
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.ids import group_id, resource_id
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.model import Estate
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.template import template
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.terraform.types import TYPES

Resource = Mapping[str, t.Any]
_KEYS = "microsoft.keyvault/vaults/keys"
_PART_OF_ANOTHER = {
    "microsoft.network/privateendpoints/privatednszonegroups": "of its azurerm_private_endpoint",
    "microsoft.storage/storageaccounts/blobservices": "of its azurerm_storage_account",
}
"""What has no resource of its own in Terraform."""


class Import(t.NamedTuple):
    """One import block.

    Args:
        type: of the resource, as the provider calls it.
        label: its name in Terraform.
        id: what is imported.
    """

    type: str
    label: str
    id: str


class Exported(t.NamedTuple):
    """What is imported, and what Terraform cannot take over as it is.

    Args:
        imports: blocks, in the order of the deployment.
        left: (resource id, why it is not among them).
    """

    imports: list[Import]
    left: list[tuple[str, str]]


def exported(estate: Estate) -> Exported:
    """Return all that an estate has, as Terraform imports it.

    Args:
        estate: of the site.
    """
    imports: list[Import] = []
    left: list[tuple[str, str]] = []
    labels: set[tuple[str, str]] = set()
    for identifier, resource in _resources(estate):
        kind = str(resource["type"]).lower()
        if kind == _KEYS:
            vault, key = str(resource["name"]).split("/")
            asked = f"az keyvault key show --vault-name {vault} --name {key} --query key.kid"
            left.append((identifier, f"its id has a version: {asked}"))
        elif kind in _PART_OF_ANOTHER:
            left.append((identifier, f"a part {_PART_OF_ANOTHER[kind]}"))
        else:
            imports += [
                Import(type_, _label(type_, name, labels), one)
                for type_, name, one in _imports(kind, identifier, resource)
            ]
    return Exported(imports, left)


def as_text(estate: Estate) -> str:
    """Return the file that Terraform reads, with what to do around it.

    Args:
        estate: of the site.
    """
    found = exported(estate)
    lines = [
        f"# The estate of the site {estate.site} in Azure, for Terraform 1.5 or later and azurerm 4.x.",
        f"# ironspan azure export wrote it of the data of the site; it says {len(found.imports)} resources.",
        "#",
        "# 1. ironspan azure --check has to find nothing to change, so that all of this is there.",
        "# 2. terraform plan -generate-config-out=estate.tf",
        "# 3. Correct estate.tf until terraform plan changes and destroys nothing, then terraform apply.",
        f"# 4. Let go of the deployment, which leaves every resource in place: {_let_go(estate)}",
        "# 5. Take azure_* out of the inventory. Two owners undo each other's changes.",
    ]
    if found.left:
        lines += ["#", "# Not imported:"]
        lines += [f"#   {identifier}\n#     {why}" for identifier, why in found.left]
    for one in found.imports:
        lines += ["", "import {", f"  to = {one.type}.{one.label}", f"  id = {_text(one.id)}", "}"]
    return "\n".join(lines) + "\n"


def _let_go(estate: Estate) -> str:
    if estate.deployment == "stack":
        return f"az stack sub delete --name {estate.name} --action-on-unmanage detachAll"
    return f"az deployment sub delete --name {estate.name}"


def _text(value: str) -> str:
    """Return a text as HCL: the escapes of JSON, and no templates."""
    return json.dumps(value, ensure_ascii=True).replace("${", "$${").replace("%{", "%%{")


def _label(kind: str, name: str, taken: set[tuple[str, str]]) -> str:
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    plain = plain if plain[:1].isalpha() else f"r_{plain}"
    chosen, number = plain, 2
    while (kind, chosen) in taken:
        chosen, number = f"{plain}_{number}", number + 1
    taken.add((kind, chosen))
    return chosen


def _resources(estate: Estate) -> Iterator[tuple[str, Resource]]:
    """Yield every resource with its id, in Azure's own writing, which the provider insists on."""
    subscription = f"/subscriptions/{estate.subscription}"
    for one in template(estate)["resources"]:
        if not templates.is_deployment(one):
            yield group_id(estate.subscription, one["name"]), one
            continue
        for inner in one["properties"]["template"]["resources"]:
            scope = inner.get("scope") or f"{subscription}/resourceGroups/{one['resourceGroup']}"
            yield resource_id(scope, inner["type"], inner["name"]), inner


Made = tuple[str, str, str]
"""(type, name that the label is made of, id)."""


def _imports(kind: str, identifier: str, resource: Resource) -> Iterator[Made]:
    """Yield the resource itself, and what Terraform keeps apart from it."""
    name, properties = str(resource["name"]), resource.get("properties") or {}
    if kind == "microsoft.authorization/roledefinitions":
        scope = identifier.partition("/providers/Microsoft.Authorization/")[0]
        subscription = "/".join(identifier.split("/")[:3])
        named = resource_id(subscription, "Microsoft.Authorization/roleDefinitions", name)
        yield TYPES[kind][0], str(properties.get("roleName") or name), f"{named}|{scope}"
        return
    if kind == "microsoft.authorization/roleassignments":
        # Its own name is a UUID; people look for what it is about.
        on = str(resource.get("scope") or "").rpartition("/")[2]
        yield TYPES[kind][0], f"{on}_{name[:8]}", identifier
        return
    yield _type(kind, properties), name, identifier
    more = _APART.get(kind)
    if more is not None:
        yield from more(name, identifier, properties)


def _type(kind: str, properties: Resource) -> str:
    types = TYPES[kind]
    uniform = properties.get("orchestrationMode") == "Uniform"
    return types[1] if uniform else types[0]


def _subnets(name: str, identifier: str, properties: Resource) -> Iterator[Made]:
    for subnet in properties.get("subnets") or ():
        one, there = f"{identifier}/subnets/{subnet['name']}", subnet["properties"]
        yield "azurerm_subnet", subnet["name"], one
        for key, what in (
            ("networkSecurityGroup", "network_security_group"),
            ("routeTable", "route_table"),
            ("natGateway", "nat_gateway"),
        ):
            if there.get(key):
                yield f"azurerm_subnet_{what}_association", subnet["name"], one


def _nat(name: str, identifier: str, properties: Resource) -> Iterator[Made]:
    for one in properties.get("publicIpAddresses") or ():
        label = one["id"].rpartition("/")[2]
        yield "azurerm_nat_gateway_public_ip_association", label, f"{identifier}|{one['id']}"


def _balancer(name: str, identifier: str, properties: Resource) -> Iterator[Made]:
    for key, what in (
        ("backendAddressPools", "backend_address_pool"),
        ("probes", "probe"),
        ("loadBalancingRules", "rule"),
    ):
        for one in properties.get(key) or ():
            yield f"azurerm_lb_{what}", f"{name}_{one['name']}", f"{identifier}/{key}/{one['name']}"


def _interface(name: str, identifier: str, properties: Resource) -> Iterator[Made]:
    security = properties.get("networkSecurityGroup")
    if security:
        one = f"{identifier}|{security['id']}"
        yield "azurerm_network_interface_security_group_association", name, one
    for entry in properties.get("ipConfigurations") or ():
        for pool in entry["properties"].get("loadBalancerBackendAddressPools") or ():
            one = f"{identifier}/ipConfigurations/{entry['name']}|{pool['id']}"
            yield "azurerm_network_interface_backend_address_pool_association", name, one


def _disks(name: str, identifier: str, properties: Resource) -> Iterator[Made]:
    for one in (properties.get("storageProfile") or {}).get("dataDisks") or ():
        disk = one["managedDisk"]["id"].rpartition("/")[2]
        yield "azurerm_virtual_machine_data_disk_attachment", disk, f"{identifier}/dataDisks/{disk}"


_APART: Mapping[str, Callable[[str, str, Resource], Iterator[Made]]] = {
    "microsoft.network/virtualnetworks": _subnets,
    "microsoft.network/natgateways": _nat,
    "microsoft.network/loadbalancers": _balancer,
    "microsoft.network/networkinterfaces": _interface,
    "microsoft.compute/virtualmachines": _disks,
}
