# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Where Terraform and a site say different things, or both want to own one resource. Asks nobody."""

from __future__ import annotations

import ipaddress
import typing as t
from collections.abc import Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.templates import by_id
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.faults import Fault
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.model import Estate
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.template import template
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.values import Values
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.terraform.fill import (
    DNS_ZONES,
    VAULTS,
    network_of,
    region_of,
    subnets_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.terraform.found import Found, Known

_DECLARED_BY: Mapping[str, tuple[str, ...]] = {
    "microsoft.compute/virtualmachines": ("azure_machines",),
    "microsoft.compute/disks": ("azure_machines",),
    "microsoft.network/networkinterfaces": ("azure_machines",),
    "microsoft.compute/virtualmachinescalesets": ("azure_pools",),
    "microsoft.keyvault/vaults": ("azure_vault",),
    "microsoft.storage/storageaccounts": ("azure_storage", "azure_backup"),
    "microsoft.network/privateendpoints": ("azure_endpoints",),
    "microsoft.network/virtualnetworkgateways": ("azure_gateway",),
    "microsoft.network/localnetworkgateways": ("azure_gateway",),
    "microsoft.network/connections": ("azure_gateway",),
    "microsoft.network/natgateways": ("azure_outbound",),
    "microsoft.resources/resourcegroups": ("azure_resource_groups",),
}
"""Type of resources, in lower case -> variables that make one; the first that is written is blamed."""
_ANYTHING = "azure_subscription"


def conflicts(
    found: Found, values: Values, written: Mapping[str, t.Any], estate: Estate | None
) -> Iterator[Fault]:
    """Yield each with its place in the variables.

    Args:
        found: what Terraform says.
        values: all variables of the site, with defaults.
        written: those that the site has written.
        estate: what they make; None where they make none yet.
    """
    for name, text in found.outputs.items():
        if written.get(name) and isinstance(written[name], str) and written[name].lower() != text.lower():
            yield (name,), f"is not what the output {name} of Terraform says", "write the same in both"
    yield from _network(found, values, written)
    yield from _zones(found, written)
    for vault in found.of(VAULTS):
        named = (written.get("azure_existing") or {}).get("vault") or ""
        tenant = vault.fact("tenant_id")
        ours = str(written.get("azure_tenant") or tenant)
        if named.lower() == vault.id.lower() and tenant and ours.lower() != tenant.lower():
            yield ("azure_tenant",), f"is not the tenant of {vault.where}, {tenant}", f"write {tenant}"
    if estate is not None:
        yield from _owners(found, written, estate)


def _network(found: Found, values: Values, written: Mapping[str, t.Any]) -> Iterator[Fault]:
    network = network_of(found, written)
    if network is None or not (written.get("azure_existing") or {}).get("virtual_network"):
        return
    location = region_of(network.fact("location"))
    if location and written.get("azure_region") and region_of(str(written["azure_region"])) != location:
        yield ("azure_region",), f"is not that of {network.where}, {location}", f"write {location}"
    spaces = [space for one in network.listed("address_space") if (space := _space(one)) is not None]
    space = _space(str(written.get("azure_address_space") or ""))
    if space and spaces and not any(space.subnet_of(one) for one in spaces):
        listed = ", ".join(map(str, spaces))
        yield (
            ("azure_address_space",),
            f"{space} is no part of {network.where}, which has {listed}",
            "write addresses of that network",
        )
    subnets = {one.name.lower(): one for one in subnets_of(found, network)}
    names = {"gateway": "GatewaySubnet", **values["azure_existing"]["subnets"]}
    for what, text in values["azure_subnets"].items():
        name = str(names.get(what, what))
        there = subnets.get(name.lower())
        if not text or not subnets:
            continue
        if there is None and what != "gateway":
            yield (
                ("azure_subnets", what),
                f"{network.where} has no subnet {name}",
                f"write its name in azure_existing.subnets; there are {', '.join(sorted(subnets))}",
            )
        elif (
            there is not None
            and there.listed("address_prefixes")
            and text not in there.listed("address_prefixes")
        ):
            listed = ", ".join(there.listed("address_prefixes"))
            yield (
                ("azure_subnets", what),
                f"{text} is not what {there.where} has, {listed}",
                f"write {listed}",
            )


def _zones(found: Found, written: Mapping[str, t.Any]) -> Iterator[Fault]:
    named = (written.get("azure_existing") or {}).get("dns_zones") or {}
    for zone, identifier in named.items():
        there = [one for one in found.of(DNS_ZONES) if one.name.lower() == str(zone).lower()]
        if there and str(identifier).lower() not in {one.id.lower() for one in there}:
            listed = ", ".join(one.id for one in there)
            yield (
                ("azure_existing", "dns_zones", zone),
                f"is another zone than that of {there[0].where}",
                f"write {listed}, or take the zone out of Terraform",
            )


def _owners(found: Found, written: Mapping[str, t.Any], estate: Estate) -> Iterator[Fault]:
    """Yield what Terraform owns and the estate makes: each would undo the other's changes."""
    made = by_id(template(estate), f"/subscriptions/{estate.subscription}")
    # A virtual network's subnets are written inside of it.
    inside = {f"{estate.virtual_network}/subnets/{one.name}".lower() for one in estate.subnets.values()}
    ids = {*made, *(set() if estate.network_exists else inside)}
    for one in found.known:
        if one.owned and one.id.lower() in ids:
            yield (_blamed(one, written),), *_said(one)


def _blamed(one: Known, written: Mapping[str, t.Any]) -> str:
    names = _DECLARED_BY.get(one.parts.kind, ())
    return next((name for name in names if written.get(name)), _ANYTHING)


def _said(one: Known) -> tuple[str, str]:
    kind = one.parts.kind.partition("/")[2]
    return (
        f"makes {kind} {one.name}, which Terraform owns ({one.where})",
        f"refer to it in azure_existing where that can be, or give it another name, or let Terraform go: "
        f"terraform state rm '{one.where}'",
    )


def _space(text: str) -> ipaddress.IPv4Network | None:
    try:
        return ipaddress.IPv4Network(text)
    except ValueError:
        return None
