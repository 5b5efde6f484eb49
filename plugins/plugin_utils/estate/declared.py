# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Makes an estate of the variables of a site. Asks nobody."""

from __future__ import annotations

import ipaddress
import typing as t
from collections.abc import Collection, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.routes import Route
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.tags import SITE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate import addresses, names, ports
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.catalogue import suggested
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.endpoints import zone_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.ids import group_id, resource_id
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.model import (
    CONTROL_PLANE,
    ETCD,
    LOCAL_NVME,
    PARTS,
    SUBNETS,
    Api,
    Deny,
    Disk,
    Estate,
    Image,
    Machine,
    Network,
    Outbound,
    Pool,
    Subnet,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.services import (
    Backup,
    Endpoint,
    Gateway,
    Peer,
    Storage,
    Vault,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.values import (
    EXISTING,
    MACHINES,
    POD_ROUTES,
    POOLS,
    REGION,
    ROUTED,
    ROUTING,
    SPACE,
    SUBSCRIPTION,
    Values,
    filled,
    routes_pods,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.formats import fault_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.listeners import (
    ADMINISTRATORS,
    SERVERS,
    all_listeners,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.listeners import NODES as WORKERS
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import load_specification

GATEWAY_SUBNET = "GatewaySubnet"
"""The name that Azure asks for."""
_OPTIONS = load_specification().options
VARIABLES = tuple(
    name
    for name in _OPTIONS
    if name.startswith(("azure_", "site_"))
    or name == ROUTING
    # What decides which ports are open, and which.
    or name in {named for row in all_listeners() for named in (row.port, row.address, *dict(row.needed))}
)
"""What an estate is made of."""
_SIZES = {"vpn": "VpnGw2AZ", "express_route": "ErGw2AZ"}


class EstateError(RemoteError):
    """The estate cannot be made of these data; checks of inventories say more, with file and line."""


def declared(variables: Mapping[str, t.Any]) -> Estate | None:
    """Return a site's estate, None for a site without one.

    Args:
        variables: of the site, ``azure_*``, ``site_*`` and the ports of layers; defaults may be left out.

    Raises:
        EstateError: something is missing without which nothing can be computed.
    """
    values = filled(variables)
    if not values[SUBSCRIPTION]:
        return None
    missing = [name for name in (REGION, SPACE, "site_name", "site_api_endpoint") if not values.get(name)]
    if missing:
        raise EstateError(f"{missing[0]} is not written", "write it beside azure_subscription")
    try:
        return _Maker(values).estate()
    except (ValueError, KeyError, StopIteration) as error:
        raise EstateError(
            f"no estate can be made of the data: {error}", "run ironspan validate, which says where"
        ) from error


class _Maker:
    """Makes one estate."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._site = str(values["site_name"])
        self._subscription = str(values[SUBSCRIPTION]).lower()
        self._prefix = str(values["azure_prefix"] or f"ironspan-{self._site}")
        self._names: dict[str, str] = values["azure_names"]
        written = values["azure_resource_groups"]
        self._groups = {part: written[part] or f"{self._prefix}-{part}" for part in PARTS}
        self._zones = tuple(map(str, values["azure_zones"]))
        self._networks = addresses.subnets(Network(values[SPACE]), values["azure_subnets"])
        planned = values["site_planned_nodes"] or sum(pool["most"] for pool in values[POOLS])
        self._suggested = suggested(planned)

    def _id(self, part: str, kind: str, name: str) -> str:
        return resource_id(group_id(self._subscription, self._groups[part]), kind, name)

    def _named(self, what: str) -> str:
        return self._names.get(what) or f"{self._prefix}-{what}"

    def _identity(self, name: str) -> str:
        return self._id("data", "Microsoft.ManagedIdentity/userAssignedIdentities", self._named(f"id-{name}"))

    def estate(self) -> Estate:
        """Return it."""
        values, existing = self._values, self._values[EXISTING]
        machines = tuple(self._machines())
        pools = tuple(self._pool(entry) for entry in values[POOLS])
        network = existing["virtual_network"] or self._id(
            "network", "Microsoft.Network/virtualNetworks", self._named("net")
        )
        racks = tuple(map(Network, values["azure_rack_networks"]))
        administrators = tuple(map(Network, values["azure_administrator_networks"]))
        groups = ports.groups_by_subnet(machines, pools)
        # Unwrapped, what a pod sends to a host has the pod's address.
        pods = Network(values["site_pod_cidr"]) if routes_pods(values) else None
        clients = {
            SERVERS: [self._networks["control"]],
            WORKERS: [self._networks["nodes"], *racks, *([pods] if pods else [])],
            ADMINISTRATORS: administrators,
        }
        api = self._api(machines)
        zones = self._dns_zones(api)
        deny, outbound, image = values["azure_deny"], values["azure_outbound"], values["azure_image"]
        return Estate(
            site=self._site,
            subscription=self._subscription,
            tenant=str(values["azure_tenant"]).lower(),
            region=values[REGION],
            zones=self._zones,
            deployment=values["azure_deployment"],
            deny=Deny(deny["mode"], tuple(deny["excluded_principals"]), tuple(deny["excluded_actions"])),
            groups=self._groups,
            prefix=self._prefix,
            names=self._names,
            tags={**values["azure_tags"], SITE: self._site},
            space=Network(values[SPACE]),
            virtual_network=network,
            network_exists=bool(existing["virtual_network"]),
            subnets=dict(self._subnets(network)),
            dns_servers=tuple(values["azure_dns_servers"]),
            dns_zones=zones,
            dns_existing=frozenset(existing["dns_zones"]),
            racks=racks,
            administrators=administrators,
            rules=tuple(ports.rules(groups, values, clients)),
            outbound=Outbound(outbound["kind"], outbound["next_hop"], outbound["addresses"]),
            pods=pods,
            pod_routes=tuple(
                Route(f"pods-{entry['node']}", entry["part"], entry["address"])
                for entry in values[POD_ROUTES]
            ),
            api=api,
            user=values["azure_user"],
            authorized_keys=tuple(values["azure_authorized_keys"]),
            image=Image(image["id"]) if image["id"] else Image("", *(image[key] for key in _IMAGE)),
            encryption_at_host=values["azure_encryption_at_host"],
            machines=machines,
            pools=pools,
            vault=self._vault(),
            backup=self._backup(),
            storage=tuple(self._storage(entry) for entry in values["azure_storage"]),
            endpoints=tuple(Endpoint(**entry) for entry in values["azure_endpoints"]),
            gateway=self._gateway(),
        )

    def _subnets(self, network: str) -> t.Iterator[tuple[str, Subnet]]:
        written = self._values[EXISTING]["subnets"]
        for what in SUBNETS:
            name = GATEWAY_SUBNET if what == "gateway" else written.get(what) or self._names.get(what) or what
            yield what, Subnet(what, name, f"{network}/subnets/{name}", self._networks[what])

    def _machines(self) -> t.Iterator[Machine]:
        used = {"control": 0, "nodes": 0}
        for entry in self._values[MACHINES]:
            groups = tuple(entry["groups"]) or (entry["name"],)
            subnet = "control" if {ETCD, CONTROL_PLANE} & set(groups) else "nodes"
            first = (
                ipaddress.IPv4Address(entry["first_address"])
                if entry["first_address"]
                else addresses.first_of_set(self._networks[subnet], used[subnet])
            )
            used[subnet] += 1
            # Machines of one InfiniBand are near each other, which zones are not.
            zones = ("",) if entry["gangs"] else tuple(map(str, entry["zones"])) or self._zones or ("",)
            disk = self._disk(entry["disk"]) if ETCD in groups else None
            for index in range(entry["count"]):
                name = f"{entry['name']}-{index + 1}"
                yield Machine(
                    name=name,
                    groups=groups,
                    zone=zones[index % len(zones)],
                    address=str(first + index),
                    subnet=subnet,
                    size=entry["size"] or self._size(groups),
                    disk=disk,
                    local_disk=ETCD in groups and disk is None,
                    os_disk_gib=entry["os_disk_gib"],
                    secure_boot=entry["secure_boot"],
                    identity=self._identity(name),
                    fabric=entry["name"] if entry["gangs"] else "",
                )

    def _size(self, groups: Collection[str]) -> str:
        return self._suggested.control_plane if CONTROL_PLANE in groups else self._suggested.etcd

    def _disk(self, entry: Values) -> Disk | None:
        if entry["kind"] == LOCAL_NVME:
            return None
        wanted = self._suggested
        return Disk(
            entry["kind"],
            entry["gib"] or wanted.gib,
            entry["iops"] or wanted.iops,
            entry["mbps"] or wanted.mbps,
        )

    def _pool(self, entry: Values) -> Pool:
        zones = tuple(map(str, entry["zones"])) or self._zones
        same = ("name", "size", "count", "most", "spot", "gangs", "os_disk_gib", "secure_boot")
        return Pool(
            groups=tuple(entry["groups"]),
            zones=zones,
            routed=entry["pods"] == ROUTED,
            identity=self._identity(entry["name"]),
            **{key: entry[key] for key in same},
        )

    def _api(self, machines: Collection[Machine]) -> Api | None:
        if not any(CONTROL_PLANE in machine.groups for machine in machines):
            return None
        host, _, port = str(self._values["site_api_endpoint"]).rpartition(":")
        first = self._networks["control"].network_address + addresses.RESERVED_FIRST
        address = str(self._values["site_api_address"] or first)
        return Api(host.lower(), address, int(port), int(self._values["control_plane_port"]))

    def _dns_zones(self, api: Api | None) -> dict[str, str]:
        existing = self._values[EXISTING]["dns_zones"]
        wanted = [api.host] if api and fault_of(api.host, "address") else []
        wanted += [zone_of("vault")] if self._vault() else []
        accounts = self._values["azure_storage"]
        wanted += [zone_of("blob")] if self._backup() or accounts else []
        wanted += [zone_of("dfs")] if any(entry["hierarchical"] for entry in accounts) else []
        wanted += [zone_of(entry["group"]) for entry in self._values["azure_endpoints"]]
        kind = "Microsoft.Network/privateDnsZones"
        return {name: existing.get(name) or self._id("network", kind, name) for name in dict.fromkeys(wanted)}

    def _vault(self) -> Vault | None:
        entry, there = self._values["azure_vault"], self._values[EXISTING]["vault"]
        if not entry["keys"]:
            return None
        name = entry["name"] or names.vault_name(self._site, self._subscription, self._groups["data"])
        return Vault(
            name=there.rpartition("/")[2] if there else name,
            id=there or self._id("data", "Microsoft.KeyVault/vaults", name),
            exists=bool(there),
            keys={purpose: self._named(f"key-{purpose}") for purpose in sorted(entry["keys"])},
            administrators=tuple(entry["administrators"]),
            hsm=entry["hsm"],
        )

    def _account(self, what: str, written: str, there: str) -> dict[str, t.Any]:
        name = written or names.account_name(what, self._site, self._subscription, self._groups["data"])
        account = there.rpartition("/")[2] if there else name
        found = there or self._id("data", "Microsoft.Storage/storageAccounts", name)
        return {"account": account, "id": found, "exists": bool(there)}

    def _backup(self) -> Backup | None:
        entry = self._values["azure_backup"]
        if not entry["container"]:
            return None
        return Backup(
            **self._account("backup", entry["account"], self._values[EXISTING]["backup_account"]),
            container=entry["container"],
            retention_days=entry["retention_days"],
            redundancy=entry["redundancy"],
            collectors=tuple(entry["collectors"]),
            readers=tuple(entry["readers"]),
        )

    def _storage(self, entry: Values) -> Storage:
        same = ("name", "hierarchical", "redundancy", "cool_after_days", "delete_after_days")
        return Storage(
            **self._account(entry["name"], entry["account"], entry["existing"]),
            containers=tuple(entry["containers"]),
            readers=tuple(entry["readers"]),
            writers=tuple(entry["writers"]),
            **{key: entry[key] for key in same},
        )

    def _gateway(self) -> Gateway | None:
        entry = self._values["azure_gateway"]
        if entry["kind"] == "none":
            return None
        peers = tuple(Peer(**{**peer, "chain": tuple(peer["chain"])}) for peer in entry["peers"])
        size = entry["size"] or _SIZES[entry["kind"]]
        return Gateway(entry["kind"], size, entry["asn"], peers, entry["circuit"], self._identity("gateway"))


_IMAGE = ("publisher", "offer", "sku", "version")
