# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is changed in the estate of the example inventory, and what must be said about it."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Mistake:
    """One mistake.

    Args:
        name: what the mistake is.
        changes: (old text, new text) in group_vars/all.yml; without an old text the new one is appended.
        says: a part of the path and message.
        at: a text that is only on the line that must be named.
    """

    name: str
    changes: tuple[tuple[str, str], ...]
    says: str
    at: str


def edit(name: str, old: str, new: str, says: str, at: str = "") -> Mistake:
    """Return a mistake made by one replacement, expected on the replaced line."""
    return Mistake(name, ((old, new),), says, at or new.splitlines()[-1])


def add(name: str, new: str, says: str, at: str = "") -> Mistake:
    """Return a mistake made by lines at the end, expected on the last of them."""
    return Mistake(name, (("", new),), says, at or new.splitlines()[-1])


_SUBSCRIPTION = "azure_subscription: 72f988bf-86f1-41af-91ab-2d7cd011db47"
_TENANT = "azure_tenant: d0a8ad3f-3c1b-4b5e-9a39-0c8f1b1f4a11"
_REGION = "azure_region: westeurope"
_SPACE = "azure_address_space: 10.20.0.0/20"
_RACKS = "azure_rack_networks: [10.30.0.0/16]"
_PEOPLE = "azure_administrator_networks: [10.31.0.0/24]"
_IMAGE = "azure_image: {version: 24.04.202610140}"
_COUNT, _FIRST = "count: 3", "first_address: 10.20.0.11"
_SET = "  - {name: az, count: 3, groups: [etcd, control_plane], first_address: 10.20.0.11}"
_POOL = "  - {name: burst, size: Standard_NC40ads_H100_v5, groups: [nodes, gpu], most: 8, spot: true}"
_STORE = "  - {name: checkpoints, containers: [checkpoints], writers: [burst], cool_after_days: 30}"
_UUID = "11111111-2222-3333-4444-555555555555"
_SIX = ", ".join(f"{_UUID[:-1]}{number}" for number in range(6))
_NET_ID = f"/subscriptions/{_UUID}/resourceGroups/hub/providers/Microsoft.Network"
_VAULT_ID = f"/subscriptions/{_UUID}/resourceGroups/a/providers/Microsoft.KeyVault/vaults/b"
_CIRCUIT = f"{_NET_ID}/expressRouteCircuits/racks"
_PEER = (
    "azure_gateway:\n  kind: vpn\n  peers:\n    - name: west\n      address: 8.8.8.8\n      asn: 64512\n"
    "      bgp_address: 10.30.0.1\n      certificate: https://hub.vault.azure.net/certificates/vpn\n"
    f"      subject: router.example\n      chain: [{'A' * 64}]"
)


def machine(name: str, more: str, says: str) -> Mistake:
    """Return a mistake in the set of machines."""
    return edit(name, _SET, _SET.replace("}", f", {more}}}"), says)


_NATIVE = "site_cni: cilium\ncilium_routing: native\n"
_ROUTED = ("most: 8, ", "most: 8, pods: routed, ")
_ENTRY = "node: az-1, part: 10.244.1.0/24, address: 10.20.0.11"
_ROUTE = {"node": "az-1", "part": "10.244.1.0/24", "address": "10.20.0.11"}


def routed(name: str, says: str, *entries: dict[str, str], at: str = "", more: str = "") -> Mistake:
    """Return a mistake in the routes to pods of a site whose pod network wraps nothing."""
    lines = [f"  - {{{', '.join(f'{key}: {value}' for key, value in one.items())}}}" for one in entries]
    text = "\n".join([f"{_NATIVE}{more}azure_pod_routes:", *lines])
    return Mistake(name, (_ROUTED, ("", text)), says, at or lines[-1])


def peer(name: str, old: str, new: str, says: str) -> Mistake:
    """Return a mistake in the router of a VPN."""
    assert old in _PEER, name
    return Mistake(name, (("", _PEER.replace(old, new, 1)),), says, new)


MISTAKES = (
    # Grammar.
    edit("subscription by name", _SUBSCRIPTION, "azure_subscription: Production", "is no identifier of a"),
    edit("tenant by name", _TENANT, "azure_tenant: example.onmicrosoft.com", "is no identifier"),
    edit("region as people say it", _REGION, "azure_region: West Europe", "is no region of Azure"),
    edit("space with host bits", _SPACE, "azure_address_space: 10.20.0.1/20", "is no IPv4 network"),
    add("zone 4", "azure_zones: [1, 2, 4]", "4 is outside 1 to 3"),
    add("deployment", "azure_deployment: bicep", "'bicep' is not one of"),
    add(
        "resource group with a dot", "azure_resource_groups: {data: data.}", "is no name of a resource group"
    ),
    add("tag", 'azure_tags: {"a/b": c}', "is no name of a tag"),
    add("user in capitals", "azure_user: Admin", "is no name of an account"),
    add("unknown subnet", "azure_subnets: {contrl: 10.20.0.0/24}", "contrl"),
    add("17 addresses", "azure_outbound: {kind: nat, addresses: 17}", "17 is outside 1 to 16"),
    machine("size in words", "size: large machine", "is no size of Azure"),
    edit("set in capitals", "name: az,", "name: AZ,", "is no name of machines", "AZ,"),
    edit("no machine", _COUNT, "count: 0", "0 is outside 1 to 100"),
    edit("pool without an end", "most: 8, ", "", "most", "Standard_NC40ads_H100_v5"),
    add("retention", "azure_backup: {retention_days: 0}", "0 is outside 1 to 146000"),
    add("redundancy", "azure_backup: {redundancy: TWICE}", "'TWICE' is not one of"),
    # Place, deployment, names.
    edit("unknown region", _REGION, "azure_region: westeurop", "is no region that is known"),
    edit(
        "region without zones", _REGION, "azure_region: westus", "has no availability zones", "azure_region"
    ),
    add("zone twice", "azure_zones: [1, 1]", "[1]: 1 is there twice"),
    edit("no tenant", _TENANT, "", "azure_tenant: is not written", _SUBSCRIPTION),
    edit("no region", _REGION, "", "azure_region: is not written", _SUBSCRIPTION),
    edit("no space", _SPACE, "", "azure_address_space: is not written", _SUBSCRIPTION),
    edit("no subscription", _SUBSCRIPTION, "", "azure_subscription is not", "azure_machines:"),
    edit("any image", _IMAGE, "azure_image: {version: latest}", "another one each time"),
    edit("no image", _IMAGE, "azure_image: {offer: server}", "azure_image.version: is not written"),
    add("plain that denies", "azure_deployment: plain\nazure_deny: {mode: denyDelete}", "denies nothing"),
    add("plain that deletes", "azure_deployment: plain\nazure_unmanaged: delete", "deletes nothing"),
    add(
        "too many principals",
        f"azure_deny: {{mode: denyDelete, excluded_principals: [{_SIX}]}}",
        "has 6, and Azure takes 5",
    ),
    add("tag of ironspan's", "azure_tags: {ironspan-site: other}", "is a tag of ironspan's own"),
    add("tag that is a list", "azure_tags: {team: [a, b]}", "must be text, is ['a', 'b']"),
    add("addresses of no gateway", "azure_outbound: {addresses: 3}", "is 3, and kind is none"),
    add("host keys of a device", "azure_known_hosts: /dev/null", "/dev/null is no file"),
    add("refused user", "azure_user: root", "root is an account that Azure refuses"),
    edit(
        "no key",
        'azure_authorized_keys: ["ssh-ed25519',
        'azure_authorized_keys: ["ecdsa',
        "is no key that Azure",
        "ecdsa",
    ),
    add("unknown name", "azure_names: {load-balanser: lb}", "is nothing that has a name"),
    add("name that Azure refuses", "azure_names: {load-balancer: x.y_(z)}", "is no name of a resource"),
    add("identity's name", "azure_names: {id-az-1: id.az}", "is no name of an identity"),
    add(
        "two with one name", "azure_names: {nic-az-1: nic-a, nic-az-2: nic-a}", "is the name of nic-az-1 too"
    ),
    add("long prefix", f"azure_prefix: {'p' * 60}", "azure_prefix: "),
    # Network.
    edit("public space", _SPACE, "azure_address_space: 20.20.0.0/20", "is not a private network"),
    edit("space that cannot be cut", _SPACE, "azure_address_space: 10.20.0.0/24", "is outside /8 to /22"),
    edit(
        "racks in the space",
        _RACKS,
        "azure_rack_networks: [10.30.0.0/16, 10.20.8.0/24]",
        "overlaps azure_address",
    ),
    edit(
        "racks among pods",
        _RACKS,
        "azure_rack_networks: [10.30.0.0/16, 10.244.8.0/24]",
        "overlaps the network of pods",
    ),
    edit("racks among services", _RACKS, "azure_rack_networks: [10.30.0.0/16, 10.96.8.0/24]", "of services"),
    edit("racks of the internet", _RACKS, "azure_rack_networks: [10.30.0.0/16, 0.0.0.0/0]", "is public"),
    edit("everybody administers", _PEOPLE, "azure_administrator_networks: [0.0.0.0/0]", "is public"),
    add("subnet elsewhere", "azure_subnets: {nodes: 10.50.0.0/24}", "is not in azure_address_space"),
    add("subnets overlap", "azure_subnets: {endpoints: 10.20.0.0/25}", "overlaps 10.20.0.0/24 (control)"),
    add("too few addresses", "azure_subnets: {nodes: 10.20.8.0/29}", "has 3 addresses, and nodes needs 8"),
    add(
        "small gateway",
        f"azure_subnets: {{gateway: 10.20.2.0/28}}\n{_PEER}",
        "is smaller than the /27",
        "gateway: 10.20.2.0",
    ),
    edit(
        "API elsewhere",
        "site_api_address: 10.20.0.10",
        "site_api_address: 10.20.3.10",
        "is no address of a load",
    ),
    add("firewall without address", "azure_outbound: {kind: firewall}", "next_hop is not written"),
    add(
        "address without firewall",
        "azure_outbound: {kind: nat, next_hop: 10.20.3.4}",
        "is written, and kind is nat",
    ),
    add("public firewall", "azure_outbound: {kind: firewall, next_hop: 8.8.4.4}", "is a public address"),
    add("VPN without routers", "azure_gateway: {kind: vpn}", "no router is written"),
    add("circuit missing", "azure_gateway: {kind: express_route}", "circuit is not written"),
    add(
        "no circuit",
        f"azure_gateway: {{kind: express_route, circuit: {_NET_ID}/connections/x}}",
        "is no circuit's id",
    ),
    add(
        "one zone",
        f"azure_gateway: {{kind: express_route, circuit: {_CIRCUIT}, size: ErGw1}}",
        "in one zone only",
    ),
    peer("router's number", "asn: 64512", "asn: 65515", "65515 is Azure's own number"),
    peer("private router", "address: 8.8.8.8", "address: 10.30.0.2", "is no public IPv4 address"),
    peer("router in Azure", "bgp_address: 10.30.0.1", "bgp_address: 10.20.0.7", "is no address of the racks"),
    # Machines.
    edit(
        "no such group",
        "[etcd, control_plane]",
        "[etcd, control_plan]",
        "there is no group control_plan",
        "control_plan]",
    ),
    edit("two members", _COUNT, "count: 4", "an even number has no use"),
    edit("address of Azure", _FIRST, "first_address: 10.20.0.1", "which is none for machines", "10.20.0.1}"),
    Mistake(
        "zone elsewhere",
        ((_SET, _SET.replace("}", ", zones: [1, 3]}")), ("", "azure_zones: [1, 2]")),
        "3 is none of azure_zones",
        "zones: [1, 3]",
    ),
    machine("unknown size", "size: Standard_D5s_v5", "is no size that is known"),
    machine("size without disks", "size: Standard_D2_v5", "which the machine's size does not take"),
    machine("local disk that is not there", "disk: {kind: local_nvme}", "has no NVMe disk of its own"),
    machine(
        "local disk without backups",
        "size: Standard_D4ads_v6, disk: {kind: local_nvme}",
        "nothing is backed up",
    ),
    machine("operations", "disk: {gib: 8, iops: 9000}", "more than the 4000 that 8 GiB"),
    machine("megabytes", "disk: {mbps: 1000}", "1000 is more than the 750 that 3000 operations"),
    machine("small Ultra", "disk: {kind: ultra, gib: 2, iops: 1000}", "less than the 4"),
    edit(
        "name twice",
        _SET,
        f"{_SET}\n  - {{name: az, groups: [nodes], zones: [1]}}",
        "is the name of azure_machines[0]",
    ),
    edit(
        "address twice",
        _SET,
        f"{_SET}\n  - {{name: two, groups: [control_plane], first_address: 10.20.0.12}}",
        "that of az-2",
    ),
    edit(
        "disk without etcd",
        _SET,
        f"{_SET}\n  - {{name: w, groups: [nodes], disk: {{gib: 64}}}}",
        "none of its groups",
    ),
    edit(
        "no Trusted Launch",
        _SET,
        f"{_SET}\n  - {{name: w, groups: [nodes], size: Standard_ND96asr_v4}}",
        "no Trusted Launch",
    ),
    edit(
        "gang without InfiniBand",
        _SET,
        f"{_SET}\n  - {{name: w, groups: [nodes], size: Standard_D4s_v5, gangs: true}}",
        "Standard_D4s_v5 has no InfiniBand",
    ),
    edit(
        "gang of the default size",
        _SET,
        f"{_SET}\n  - {{name: w, groups: [nodes], gangs: true}}",
        "by default has no InfiniBand",
    ),
    edit(
        "gang of etcd",
        _COUNT,
        f"{_COUNT}, gangs: true",
        "not in the group nodes",
    ),
    edit(
        "gang over zones",
        _SET,
        f"{_SET}\n  - {{name: w, groups: [nodes], size: Standard_ND96isr_H100_v5, gangs: true, zones: [1]}}",
        "in an availability set",
    ),
    # Pools.
    edit("gangs", "spot: true}", "gangs: true}", "flexible scale sets no InfiniBand"),
    edit("more than most", "most: 8", "count: 9, most: 8", "9 is more than most", "count: 9"),
    edit("pool of etcd", "[nodes, gpu]", "[nodes, etcd]", "etcd must not"),
    edit("pool of no workers", "groups: [nodes, gpu]", "groups: [gpu]", "lacks nodes", "groups: [gpu]"),
    edit("GPUs that are not there", "Standard_NC40ads_H100_v5", "Standard_D4s_v5", "has no GPU"),
    # Services.
    add(
        "key without its role",
        "azure_vault: {keys: [kms, backup, pki]}",
        "administrators, who would use it, is empty",
    ),
    add(
        "secrets without a key",
        "azure_vault: {keys: [backup]}\ncontrol_plane_kms_x: 1",
        "control_plane_kms_x",
    ),
    edit("store without its role", "writers: [burst], ", "", "so nobody may use it", "name: checkpoints"),
    edit("unknown writer", "writers: [burst]", "writers: [brust]", "brust is no pool"),
    edit(
        "store without containers",
        "containers: [checkpoints], ",
        "",
        "containers: is empty",
        "name: checkpoints",
    ),
    edit(
        "deleted before cool",
        "cool_after_days: 30",
        "cool_after_days: 30, delete_after_days: 20",
        "is not after",
    ),
    edit(
        "store twice",
        _STORE,
        f"{_STORE}\n  - {{name: checkpoints, containers: [more], account: moreofit1, readers: [burst]}}",
        "too",
    ),
    add(
        "endpoint of another kind",
        f"azure_endpoints:\n  - {{name: db, group: Sql, resource: {_NET_ID}/x/y}}",
        "is no id of Microsoft.DocumentDB",
    ),
    add(
        "network of another kind",
        f"azure_existing: {{virtual_network: {_NET_ID}/loadBalancers/lb}}",
        "is no id of Microsoft.Network/virtualNetworks",
    ),
    add(
        "zone of another name",
        f"azure_existing: {{dns_zones: {{a.example: {_NET_ID}/privateDnsZones/b.example}}}}",
        "is no id of the zone",
    ),
    add(
        "name twice over",
        f"azure_vault: {{name: kv-one}}\nazure_existing: {{vault: {_VAULT_ID}}}",
        "names another",
        "azure_vault:",
    ),
    # Pods that nothing wraps.
    edit("routed pods with flannel", *_ROUTED, "is routed, and flannel wraps", "pods: routed"),
    Mistake(
        "routed pods in a tunnel",
        (_ROUTED, ("", "site_cni: cilium")),
        "is routed, and cilium",
        "pods: routed",
    ),
    Mistake(
        "pods that are wrapped by nobody", (("", _NATIVE),), "is overlay, and cilium_routing", "name: burst"
    ),
    Mistake(
        "more nodes than routes",
        (("most: 8, ", "most: 398, pods: routed, "), ("", _NATIVE)),
        "401 routes are needed when all nodes are there, and a route table has 400",
        "most: 398",
    ),
    add(
        "routes that nobody uses",
        f"azure_pod_routes: [{{{_ENTRY}}}]",
        "flannel wraps what pods send: no route",
    ),
    routed("part of services", "is no node's part", {**_ROUTE, "part": "10.96.0.0/24"}),
    routed("part of two nodes", "a /24 each", {**_ROUTE, "part": "10.244.2.0/23"}),
    routed("route to a rack", "is in no subnet of machines", {**_ROUTE, "address": "10.30.1.11"}),
    routed("node with two", "has a route already", _ROUTE, {**_ROUTE, "part": "10.244.2.0/24"}),
    routed(
        "part twice",
        "is that of az-1 too",
        _ROUTE,
        {**_ROUTE, "node": "az-2", "address": "10.20.0.12"},
    ),
)
