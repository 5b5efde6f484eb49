# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Fills variables of a site with what Terraform says there is. Asks nobody."""

from __future__ import annotations

import copy
import re
import typing as t
from collections.abc import Callable, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.endpoints import ZONES, zone_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.formats import fault_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import load_specification
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.terraform.found import Found, Known

NETWORKS = "Microsoft.Network/virtualNetworks"
SUBNETS = f"{NETWORKS}/subnets"
DNS_ZONES = "Microsoft.Network/privateDnsZones"
VAULTS, ACCOUNTS = "Microsoft.KeyVault/vaults", "Microsoft.Storage/storageAccounts"
CIRCUITS = "Microsoft.Network/expressRouteCircuits"
SERVICES: Mapping[str, str] = {
    "Microsoft.DocumentDB/databaseAccounts": "Sql",
    "Microsoft.DBforPostgreSQL/flexibleServers": "postgresqlServer",
    "Microsoft.ContainerRegistry/registries": "registry",
}
"""Type of a service -> the part of it that a private endpoint leads to."""
_SUBNET_NAMES = {"control": "control", "nodes": "nodes", "endpoints": "endpoints", "gatewaysubnet": "gateway"}
_IMAGES = ("Microsoft.Compute/galleries/images/versions", "Microsoft.Compute/images")
_TAKEN = ("vault", "backup")
"""Names that private endpoints of the estate itself have."""
Values = dict[str, t.Any]


class Filled(t.NamedTuple):
    """What came of it.

    Args:
        variables: whole values of the variables in which something was filled in.
        sources: variable, with keys inside of it -> where in Terraform it comes from.
        notes: what was left to people, and why.
    """

    variables: Values
    sources: dict[str, str]
    notes: list[str]


def fill(found: Found, written: Mapping[str, t.Any]) -> Filled:
    """Return variables with what Terraform says, in the places where the site says nothing.

    Args:
        found: what Terraform says.
        written: ``azure_*`` variables of the site, as they are written, without defaults.
    """
    return _Filler(found, written).all()


def network_of(found: Found, written: Mapping[str, t.Any]) -> Known | None:
    """Return the virtual network that the site uses, or would: None where that is open."""
    networks, named = found.of(NETWORKS), _inside(written, "azure_existing").get("virtual_network")
    if named:
        return next((one for one in networks if one.id.lower() == str(named).lower()), None)
    return networks[0] if len(networks) == 1 else None


def subnets_of(found: Found, network: Known) -> list[Known]:
    """Return the subnets of a virtual network."""
    return [one for one in found.of(SUBNETS) if one.id.lower().startswith(f"{network.id.lower()}/subnets/")]


def region_of(location: str) -> str:
    """Return the short name of a region: Azure also writes ``West Europe``."""
    return location.replace(" ", "").lower()


def _inside(values: Mapping[str, t.Any], name: str) -> Mapping[str, t.Any]:
    value = values.get(name)
    return value if isinstance(value, Mapping) else {}


class _Filler:
    """Fills the variables of one site."""

    def __init__(self, found: Found, written: Mapping[str, t.Any]) -> None:
        self._found, self._written = found, written
        self._values: Values = copy.deepcopy({name: value for name, value in written.items() if value})
        self._filled: dict[str, str] = {}
        self._notes: list[str] = []

    def all(self) -> Filled:
        """Return what was filled in."""
        for step in _STEPS:
            step(self)
        if self._found.hidden:
            self._notes.append(f"not looked at, since they are sensitive: {', '.join(self._found.hidden)}")
        changed = dict.fromkeys(place.partition(".")[0].partition("[")[0] for place in self._filled)
        return Filled({name: self._values[name] for name in changed}, self._filled, self._notes)

    def _put(self, value: t.Any, where: str, name: str, *keys: str) -> None:
        """Fill in one value, unless the site has written one there."""
        inside = self._values
        for step in (name, *keys)[:-1]:
            inside = inside.setdefault(step, {})
            if not isinstance(inside, dict):
                return
        last = (name, *keys)[-1]
        if value and not inside.get(last):
            inside[last] = value
            self._filled[".".join((name, *keys))] = where

    def _add(self, name: str, entry: Values, where: str) -> None:
        entries = self._values.setdefault(name, [])
        if isinstance(entries, list):
            entries.append(entry)
            self._filled[f"{name}[{len(entries) - 1}]"] = where

    def _one(self, what: str, candidates: list[Known], place: str) -> Known | None:
        """Return the only candidate; several are named, since a choice is nobody's but people's."""
        if len(candidates) > 1:
            listed = "".join(f"\n    {one.id}  ({one.where})" for one in candidates)
            self._notes.append(f"{place}: there are {len(candidates)} {what}; write the id of one:{listed}")
        return candidates[0] if len(candidates) == 1 else None

    def outputs(self) -> None:
        """Outputs that are called like variables are their values."""
        options = load_specification().options
        for name, text in self._found.outputs.items():
            option = options.get(name)
            if option is None or option.type != "str":
                self._notes.append(f"output {name}: there is no variable of that name that is one text")
            elif option.format and fault_of(text, option.format):
                self._notes.append(f"output {name} is no value of that variable")
            else:
                self._put(text, f"output {name}", name)

    def network(self) -> None:
        """The virtual network with its addresses and subnets."""
        existing = _inside(self._written, "azure_existing")
        network = network_of(self._found, self._written)
        if network is None:
            if not existing.get("virtual_network"):
                self._one("virtual networks", self._found.of(NETWORKS), "azure_existing.virtual_network")
            return
        self._put(network.id, network.where, "azure_existing", "virtual_network")
        self._put(region_of(network.fact("location")), network.where, "azure_region")
        spaces = [one for one in network.listed("address_space") if not fault_of(one, "cidr")]
        if len(spaces) == 1:
            self._put(spaces[0], network.where, "azure_address_space")
        elif spaces and not self._values.get("azure_address_space"):
            self._notes.append(
                f"azure_address_space: {network.where} has {', '.join(spaces)}; write one of them"
            )
        named = {str(name).lower(): what for what, name in _inside(existing, "subnets").items()}
        for subnet in subnets_of(self._found, network):
            what = named.get(subnet.name.lower()) or _SUBNET_NAMES.get(subnet.name.lower())
            networks = subnet.listed("address_prefixes")
            if what is None:
                self._notes.append(
                    f"azure_existing.subnets: {subnet.name} ({', '.join(networks)}) is by its name none of "
                    f"control, nodes, endpoints; where it is one, write {{control: {subnet.name}}}"
                )
            elif len(networks) == 1 and not fault_of(networks[0], "cidr"):
                self._put(networks[0], subnet.where, "azure_subnets", what)

    def zones(self) -> None:
        """Private DNS zones that endpoints of the estate, or its API, have records in."""
        useful = {zone_of(group) for group in ZONES}
        api = str(self._written.get("site_api_endpoint") or "").rpartition(":")[0]
        for zone in sorted({one.name.lower() for one in self._found.of(DNS_ZONES)} & {*useful, api}):
            one = self._one(
                f"zones {zone}",
                [each for each in self._found.of(DNS_ZONES) if each.name.lower() == zone],
                "azure_existing.dns_zones",
            )
            if one is not None:
                self._put(one.id, one.where, "azure_existing", "dns_zones", zone)

    def vault(self) -> None:
        """The vault, where the site does not name one of its own."""
        if _inside(self._written, "azure_existing").get("vault") or _inside(self._written, "azure_vault").get(
            "name"
        ):
            return
        one = self._one("vaults", self._found.of(VAULTS), "azure_existing.vault")
        if one is not None:
            self._put(one.id, one.where, "azure_existing", "vault")
            self._put(one.fact("tenant_id").lower(), one.where, "azure_tenant")

    def accounts(self) -> None:
        """Storage accounts: each would get an endpoint; people delete those that nobody needs."""
        known = {str(_inside(self._written, "azure_existing").get("backup_account") or "").lower()}
        known |= {
            str(entry.get("existing") or "").lower()
            for entry in self._written.get("azure_storage") or ()
            if isinstance(entry, Mapping)
        }
        for account in self._found.of(ACCOUNTS):
            if account.id.lower() in known:
                continue
            entry: Values = {"name": self._name(account.name, "azure_storage"), "existing": account.id}
            if account.fact("is_hns_enabled") == "false":
                entry["hierarchical"] = False
            self._add("azure_storage", entry, account.where)

    def services(self) -> None:
        """Cosmos DB, PostgreSQL and registries: private endpoints."""
        known = {
            str(entry.get("resource") or "").lower()
            for entry in self._written.get("azure_endpoints") or ()
            if isinstance(entry, Mapping)
        }
        for kind, group in SERVICES.items():
            for service in self._found.of(kind):
                if service.id.lower() in known:
                    continue
                if service.fact("delegated_subnet_id"):
                    self._notes.append(
                        f"azure_endpoints: {service.where} is in a subnet of its own, and takes no private "
                        "endpoint; peer that network"
                    )
                    continue
                name = self._name(service.name, "azure_endpoints")
                entry = {"name": name, "group": group, "resource": service.id}
                self._add("azure_endpoints", entry, service.where)

    def _name(self, name: str, variable: str) -> str:
        """Return a name by the rules of the site, which nothing else with an endpoint has."""
        plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        plain = (plain if plain[:1].isalpha() else f"x-{plain}")[:36].strip("-")
        taken = {*_TAKEN}
        for one in ("azure_storage", "azure_endpoints"):
            for entry in self._values.get(one) or ():
                if isinstance(entry, Mapping):
                    taken |= {str(entry.get("name")), f"{entry.get('name')}-dfs"}
        number = 1
        while (chosen := plain if number == 1 else f"{plain}-{number}") in taken or f"{chosen}-dfs" in taken:
            number += 1
        return chosen

    def circuit(self) -> None:
        """ExpressRoute circuits: whether the estate makes a gateway to one is people's choice."""
        if not self._written.get("azure_gateway"):
            self._notes += [
                f"azure_gateway: {one.where} is a circuit. For a gateway of the estate to it write "
                f"{{kind: express_route, circuit: {one.id}}}"
                for one in self._found.of(CIRCUITS)
            ]

    def image(self) -> None:
        """The image, where the site has none."""
        if self._written.get("azure_image"):
            return
        images = [one for kind in _IMAGES for one in self._found.of(kind)]
        one = self._one("images", images, "azure_image.id")
        if one is not None:
            self._put(one.id, one.where, "azure_image", "id")

    def subscription(self) -> None:
        """The subscription, where there is one only."""
        there = {one.parts.subscription for one in self._found.known}
        if len(there) == 1:
            self._put(*there, "all ids", "azure_subscription")
        elif there and not self._values.get("azure_subscription"):
            self._notes.append(
                f"azure_subscription: ids are of {', '.join(sorted(there))}; write one of them"
            )


_STEPS: tuple[Callable[[_Filler], None], ...] = (
    _Filler.outputs,
    _Filler.subscription,
    _Filler.network,
    _Filler.zones,
    _Filler.vault,
    _Filler.accounts,
    _Filler.services,
    _Filler.circuit,
    _Filler.image,
)
