# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""More of what is changed in the estate: who speaks to Azure, addresses, the gateway, what exists already."""

from __future__ import annotations

from .mistakes import (
    _CIRCUIT,
    _COUNT,
    _FIRST,
    _IMAGE,
    _NET_ID,
    _PEER,
    _PEOPLE,
    _REGION,
    _ROUTE,
    _SET,
    _STORE,
    _SUBSCRIPTION,
    _TENANT,
    _UUID,
    _VAULT_ID,
    Mistake,
    add,
    edit,
    peer,
    routed,
)

_OURS = _SUBSCRIPTION.split(": ")[1]
_KEY = 'azure_authorized_keys: ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHvTgzvdMMV0tNd2Y8n7ypp3'
_ACCOUNT = f"/subscriptions/{_UUID}/resourceGroups/a/providers/Microsoft.Storage/storageAccounts/acc1"
_NETWORK = f"virtual_network: {_NET_ID}/virtualNetworks/hub"
_SUBNETS = "azure_subnets: {control: 10.20.0.0/24, nodes: 10.20.8.0/21, endpoints: 10.20.1.0/24}"
_EXISTING = "containers: [checkpoints], writers: [burst], cool_after_days: 30"


def circuit(name: str, more: str, says: str) -> Mistake:
    """Return a mistake in the connection to a circuit."""
    return add(name, f"azure_gateway: {{kind: express_route, circuit: {_CIRCUIT}{more}}}", says)


def hop(name: str, address: str, says: str) -> Mistake:
    """Return a mistake in the address of a firewall."""
    return add(name, f"azure_outbound: {{kind: firewall, next_hop: {address}}}", says)


def image(name: str, new: str, says: str) -> Mistake:
    """Return a mistake in the image."""
    return edit(name, _IMAGE, f"azure_image: {{{new}}}", says)


def another(name: str, entry: str, says: str) -> Mistake:
    """Return a mistake in a second set of machines."""
    return edit(name, _SET, f"{_SET}\n  - {{{entry}}}", says)


def exists(name: str, entry: str, says: str, more: str = "") -> Mistake:
    """Return a mistake in what exists already."""
    return add(name, f"{more}azure_existing: {{{entry}}}", says)


MORE = (
    # Who speaks to Azure, and who may do what.
    edit(
        "tenant of the subscription",
        _TENANT,
        f"azure_tenant: {_OURS}",
        "is the identifier of the subscription",
    ),
    add("identity of nobody", f"azure_management: {{client_id: {_UUID}}}", "which does not read it"),
    add(
        "token of another tenant",
        f"azure_management: {{kind: workload_identity, tenant_id: {_UUID}}}",
        "is another tenant than azure_tenant",
    ),
    add(
        "token in the clear",
        "azure_management: {url: 'http://management.azure.com'}",
        "send tokens unencrypted",
    ),
    add(
        "manager with a path",
        "azure_management: {url: 'https://management.azure.com/subscriptions'}",
        "is more than the address of a host",
    ),
    add("deny settings of nothing", f"azure_deny: {{excluded_principals: [{_UUID}]}}", "and mode is none"),
    add(
        "collector that is a subscription",
        f"azure_backup: {{collectors: [{_OURS}]}}",
        "identifier of the subsc",
    ),
    # Names and tags.
    add("groups in capitals", "azure_resource_groups: {network: rg-a, data: RG-A}", "is the group rg-a too"),
    add("name that is none", 'azure_names: {load-balancer: ""}', "has no name"),
    add("tag that is a number", "azure_tags: {cost: 4711}", "must be text, is 4711"),
    add("tag in capitals too", "azure_tags: {Owner: a, owner: b}", "is the tag Owner too"),
    # Machines begin with an image and a login.
    edit(
        "nobody administers", _PEOPLE, "azure_administrator_networks: []", "keep everybody from the machines'"
    ),
    add("account of the system", "azure_user: daemon", "daemon is an account that Azure refuses"),
    add("host keys below a file", "azure_known_hosts: /dev/null/known", "/dev/null/known is no file"),
    edit(
        "key of another kind",
        _KEY,
        _KEY.replace("ssh-ed25519", "ssh-rsa"),
        "is no key of the kind ssh-rsa",
        "ssh-rsa",
    ),
    edit(
        "comment for a key", _KEY, _KEY.replace("AAAAC3", "ops AAAAC3"), "is no key of the kind", "ops AAAAC3"
    ),
    image("newest image", "version: Latest", "is latest, another one"),
    image("version of two numbers", 'version: "24.04"', "is no version of an image"),
    image(
        "image by its URN",
        "version: 'Canonical:ubuntu-24_04-lts:server:24.04.202610140'",
        "is no version of an",
    ),
    image("image of the first generation", "version: 24.4.1, sku: server-gen1", "is of generation 1"),
    image("image for Arm", "version: 24.4.1, sku: server-arm64", "has processors of x86"),
    image("image of Windows", "version: 24.4.1, publisher: MicrosoftWindowsServer", "publishes Windows"),
    image("image that is a network", f"id: {_NET_ID}/virtualNetworks/a", "is no id of an image"),
    image(
        "newest of a gallery",
        f"id: {_NET_ID.replace('Network', 'Compute')}/galleries/g/images/i/versions/latest",
        "is of the version latest",
    ),
    image(
        "two images",
        f"version: 24.4.1, id: {_NET_ID.replace('Network', 'Compute')}/images/i",
        "is written beside id",
    ),
    # Addresses.
    edit(
        "people among pods",
        _PEOPLE,
        "azure_administrator_networks: [10.244.1.0/24]",
        "lies in the network of pods",
    ),
    edit("people among services", _PEOPLE, "azure_administrator_networks: [10.96.1.0/24]", "of services"),
    add("resolver of the host itself", "azure_dns_servers: [127.0.0.53]", "is a loopback address"),
    add("resolver of another family", "azure_dns_servers: ['fd00::53']", "is no IPv4 address"),
    add(
        "resolver that is the load balancer",
        "azure_dns_servers: [10.20.0.10]",
        "is that of the load balancer",
    ),
    add("resolver that is Azure's gateway", "azure_dns_servers: [10.20.0.1]", "is one that Azure keeps in"),
    add(
        "more resolvers than Azure takes",
        f"azure_dns_servers: [{', '.join(f'10.31.0.{number}' for number in range(1, 22))}]",
        "has 21, and Azure takes 20",
    ),
    hop("firewall among pods", "10.244.0.4", "lies in site_pod_cidr"),
    hop("firewall that is a machine", "10.20.0.11", "is the address of az-1"),
    hop("firewall that is the load balancer", "10.20.0.10", "is that of the load balancer"),
    hop("firewall on itself", "127.0.0.1", "is a loopback address"),
    hop("firewall of another family", "'fd00::1'", "is no IPv4 address"),
    hop("firewall in a rack", "10.30.0.1", "reaches no next hop through one"),
    edit(
        "API without a domain",
        "site_api_endpoint: api.example.internal:6443",
        "site_api_endpoint: api:6443",
        "a private DNS zone of one label",
    ),
    # The gateway.
    circuit("size of a VPN", ", size: VpnGw2AZ", "is no size of a gateway of the kind express_route"),
    circuit("number of a circuit's gateway", ", asn: 64999", "only a VPN has another number"),
    circuit("peering for a circuit", "/peerings/AzurePrivatePeering", "is no circuit's id"),
    add("circuit of no gateway", f"azure_gateway: {{circuit: {_CIRCUIT}}}", "is written, and kind is none"),
    add("size of no gateway", "azure_gateway: {size: VpnGw2AZ}", "is written, and kind is none"),
    add(
        "size of a circuit",
        _PEER.replace("  peers:", "  size: ErGw1AZ\n  peers:"),
        "of the kind vpn",
        "size: ErGw1AZ",
    ),
    add(
        "size that there is not",
        _PEER.replace("  peers:", "  size: VpnGw9AZ\n  peers:"),
        "is no size of",
        "VpnGw9AZ",
    ),
    peer("number that nobody has", "asn: 64512", "asn: 65535", "65535 is a number that no router may have"),
    peer(
        "BGP at the public address", "bgp_address: 10.30.0.1", "bgp_address: 8.8.8.8", "speaks BGP inside of"
    ),
    peer("BGP among pods", "bgp_address: 10.30.0.1", "bgp_address: 10.244.0.1", "is no address of the racks"),
    peer("BGP of itself", "bgp_address: 10.30.0.1", "bgp_address: 127.0.0.1", "is no address of the racks"),
    peer(
        "BGP of a host",
        "bgp_address: 10.30.0.1",
        "bgp_address: 10.30.1.11",
        "is the address of host gpu-a-01",
    ),
    peer("certificate in the clear", "https://hub.vault", "http://hub.vault", "is no certificate in a vault"),
    peer("certificate of a web server", "/certificates/vpn", "/vpn.pem", "is no certificate in a vault"),
    peer("no authorities", f"chain: [{'A' * 64}]", "chain: []", "would be trusted by nobody"),
    peer(
        "half of a certificate", f"chain: [{'A' * 64}]", f"chain: [{'A' * 65}]", "is no certificate in base64"
    ),
    add(
        "router twice",
        _PEER
        + _PEER.partition("peers:")[2]
        .replace("west", "east")
        .replace("10.30.0.1", "10.30.0.2")
        .replace("8.8.8.8", '"8.8.8.8"'),
        "8.8.8.8 is that of azure_gateway.peers[0] too",
        'address: "8.8.8.8"',
    ),
    # Machines and pools.
    edit(
        "machine on premises",
        "[etcd, control_plane]",
        "[etcd, control_plane, on_prem]",
        "is of the racks",
        "on_prem]",
    ),
    edit(
        "machine in a rack's group",
        "[etcd, control_plane]",
        "[etcd, control_plane, rack_a]",
        "is of the racks",
        "rack_a]",
    ),
    another(
        "worker and control plane", "name: w, groups: [nodes, control_plane]", "joins the cluster only once"
    ),
    another("GPU of the default size", "name: g, groups: [nodes, gpu]", "has no GPU, and its hosts are in"),
    another(
        "address of another family",
        "name: w, groups: [nodes], first_address: 'fd00::5'",
        "is no IPv4 address",
    ),
    Mistake("nine members", ((_COUNT, "count: 9"), (f", {_FIRST}", "")), "9 members of etcd", "count: 9"),
    edit("pool of a rack", "[nodes, gpu]", "[nodes, gpu, on_prem]", "is of the racks", "on_prem]"),
    edit(
        "pool larger than the pod network",
        "most: 8",
        "most: 300",
        "nodes are there when all pools are full",
        "most: 300",
    ),
    # Services.
    Mistake(
        "copies in zones that there are not",
        (
            (_REGION, "azure_region: westus\nazure_zones: []"),
            (f"azure_machines:\n{_SET}", "azure_machines: []"),
            (_STORE, _STORE.replace("writers", "redundancy: LRS, writers")),
            ("", "azure_backup: {redundancy: ZRS}"),
        ),
        "is ZRS, and westus has not got availability zones",
        "azure_backup",
    ),
    Mistake(
        "copies in a region that there is not",
        ((_REGION, "azure_region: polandcentral"), ("", "azure_backup: {redundancy: GRS}")),
        "is GRS, and polandcentral has not got a partner",
        "azure_backup",
    ),
    add(
        "vault without keys",
        f"azure_existing: {{vault: {_VAULT_ID}}}\nazure_vault: {{keys: []}}",
        "is empty, and azure_existing.vault is written",
    ),
    add(
        "account without a container",
        "azure_backup: {container: '', account: examplebk}",
        "is empty, and account is",
    ),
    exists("half of a subscription", f"vault: {_VAULT_ID.replace(_UUID, '-' * 36)}", "is no resource id"),
    exists(
        "zone that nobody asks",
        f"dns_zones: {{blob.core.windows.net: {_NET_ID}/privateDnsZones/blob.core.windows.net}}",
        "is no zone that private endpoints",
    ),
    exists(
        "machines in the gateway's subnet",
        f"{_NETWORK}, subnets: {{control: GatewaySubnet}}",
        "is Azure's own",
        f"{_SUBNETS}\n",
    ),
    exists(
        "one subnet for two",
        f"{_NETWORK}, subnets: {{control: all, nodes: all}}",
        "is the subnet of more than one",
        f"{_SUBNETS}\n",
    ),
    edit(
        "store called like the vault",
        "{name: checkpoints",
        "{name: vault",
        "own endpoint is called",
        "name: vault",
    ),
    edit(
        "rules of somebody else",
        _EXISTING,
        f"existing: {_ACCOUNT}, cool_after_days: 30",
        "is written beside existing",
        "existing:",
    ),
    add(
        "endpoint twice",
        f"azure_endpoints:\n  - {{name: one, group: blob, resource: {_ACCOUNT}}}\n"
        f"  - {{name: two, group: blob, resource: {_ACCOUNT}}}",
        "has an endpoint of this group already",
    ),
    # Pods that nothing wraps.
    routed(
        "route to another machine", "is not that of az-1, 10.20.0.11", {**_ROUTE, "address": "10.20.0.12"}
    ),
    routed(
        "route to the load balancer",
        "is no machine's",
        {**_ROUTE, "node": "burst-1", "address": "10.20.0.10"},
    ),
    routed(
        "route to a host of a rack",
        "is not that of gpu-a-01",
        {**_ROUTE, "node": "gpu-a-01", "address": "10.20.8.20"},
    ),
    Mistake(
        "machines of another purpose",
        (("[etcd, control_plane]", "[control_plane]"), ("", "azure_vault: {keys: [kms]}")),
        "az-1 is in control_plane, and the inventory lists it in etcd",
        "[control_plane]",
    ),
    add("subnet smaller than any", "azure_subnets: {gateway: 10.20.2.0/30}", "is smaller than the /29"),
    Mistake(
        "pools larger than the plan",
        (("most: 8", "most: 150"), ("", "site_planned_nodes: 100")),
        "163 nodes are there when all pools are full, and site_planned_nodes is 100",
        "most: 150",
    ),
)
