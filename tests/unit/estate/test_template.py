# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The deployment: its shape, and what each resource must be like."""

from __future__ import annotations

import json
import re
import typing as t
from collections.abc import Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.declared import VARIABLES, declared
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.ids import resource_id
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.machines import etcd_devices
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.template import template
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import layers_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.listeners import all_listeners
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import load_specification

from ironspan.lab.azure.arm.kinds import find
from ironspan.lab.azure.arm.schema import problems

from .conftest import PERSON, RICH, SMALL, SUBSCRIPTION, inner, made, of_kind


def texts(value: t.Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text in a template with its path."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from texts(one, f"{path}/{key}")
    elif isinstance(value, list):
        for one in value:
            yield from texts(one, path)
    elif isinstance(value, str):
        yield path, value


def test_a_site_without_a_subscription_has_none() -> None:
    assert declared({**SMALL, "azure_subscription": ""}) is None


def test_the_template_is_the_same_each_time() -> None:
    assert json.dumps(template(made())) == json.dumps(template(made()))


def test_only_ids_of_identities_are_expressions() -> None:
    found = [(path, text) for path, text in texts(template(made(**RICH))) if text.startswith("[")]
    assert found
    pattern = re.compile(r"\[reference\('/subscriptions/[^']+', '2024-11-30'\)\.(principalId|clientId)\]")
    assert [path for path, text in found if not pattern.fullmatch(text)] == []
    assert all("/properties/" in path for path, _text in found)


def test_what_is_waited_for_is_in_the_same_template() -> None:
    for outer in template(made(**RICH))["resources"]:
        resources = outer["properties"].get("template", {}).get("resources", [])
        scope = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{outer.get('resourceGroup')}"
        ids = [resource_id(one.get("scope", scope), one["type"], one["name"]) for one in resources]
        assert len(set(ids)) == len(ids)
        for index, one in enumerate(resources):
            # In order, too: nobody has to sort.
            assert set(one.get("dependsOn", ())) <= set(ids[:index]), one["name"]


def test_etcd_has_a_disk_that_outlives_its_machine() -> None:
    resources = inner(made(), "machines")
    machines, disks = of_kind(resources, "virtualMachines"), of_kind(resources, "disks")
    assert set(disks) == {f"ironspan-example-etcd-etcd-{number}" for number in (1, 2, 3)}
    for name in ("etcd-1", "etcd-2", "etcd-3"):
        (data,) = machines[name]["properties"]["storageProfile"]["dataDisks"]
        assert data["createOption"] == "Attach"
        assert data["lun"] == 0
        assert data["deleteOption"] == "Detach"
        assert data["caching"] == "None"
        assert data["managedDisk"]["id"].endswith(f"/disks/ironspan-example-etcd-{name}")
        assert machines[name]["zones"] == disks[f"ironspan-example-etcd-{name}"]["zones"]
    assert machines["control-plane-1"]["properties"]["storageProfile"]["dataDisks"] == []
    assert [machines[f"etcd-{number}"]["zones"] for number in (1, 2, 3)] == [["1"], ["2"], ["3"]]


def test_the_paths_of_etcds_disk_follow_from_its_kind() -> None:
    sets = [
        {"name": "etcd", "count": 3, "groups": ["etcd"]},
        {
            "name": "fast",
            "count": 1,
            "groups": ["etcd"],
            "size": "Standard_D4ads_v6",
            "disk": {"kind": "local_nvme"},
        },
        {"name": "cp", "count": 1, "groups": ["control_plane"]},
    ]
    paths = {one.name: etcd_devices(one) for one in made(azure_machines=sets).machines}
    assert paths["etcd-1"] == ("/dev/disk/azure/data/by-lun/0", "/dev/disk/azure/scsi1/lun0")
    assert paths["fast-1"] == ("/dev/disk/azure/local/by-index/1",)
    assert paths["cp-1"] == ()


def test_the_load_balancer_has_members_by_their_interfaces_only() -> None:
    (balancer,) = of_kind(inner(made(), "network"), "loadBalancers").values()
    assert balancer["properties"]["backendAddressPools"] == [{"name": "api"}]
    interfaces = of_kind(inner(made(), "machines"), "networkInterfaces")
    members = {
        name
        for name, one in interfaces.items()
        if "loadBalancerBackendAddressPools" in one["properties"]["ipConfigurations"][0]["properties"]
    }
    assert members == {f"ironspan-example-nic-control-plane-{number}" for number in (1, 2, 3)}


def test_no_host_has_a_public_address() -> None:
    assert "publicIP" not in json.dumps(template(made()))
    for part in ("machines", "nodes"):
        assert "publicIP" not in json.dumps(inner(made(**RICH), part))


def test_bodies_are_those_of_the_locked_libraries() -> None:
    """No field that Azure's models do not have, and the versions that the libraries send."""
    for outer in [*template(made(**RICH))["resources"], *template(made(**ROUTED))["resources"]]:
        for one in outer["properties"].get("template", {}).get("resources", []):
            kind = find(one["type"])
            assert one["apiVersion"] in kind.versions, one["type"]
            body = {
                key: one[key]
                for key in one
                if key not in ("type", "apiVersion", "name", "scope", "dependsOn")
            }
            assert problems(kind.model, body) == [], one["type"]


def ports_of(resources: list[dict[str, t.Any]], name: str) -> set[tuple[str, str]]:
    """Return what a security group opens."""
    rules = of_kind(resources, "networkSecurityGroups")[name]["properties"]["securityRules"]
    return {
        (rule["properties"]["protocol"].lower(), rule["properties"]["destinationPortRange"])
        for rule in rules
        if rule["properties"]["access"] == "Allow" and "sourceAddressPrefixes" in rule["properties"]
    }


def test_security_groups_open_what_the_table_says_and_nothing_else() -> None:
    """Compared with the table itself, read once more and without the code that renders rules."""
    values = {**load_specification().defaults, "site_api_endpoint": "api.example.internal:6443"}
    resources = inner(made(**RICH), "network")
    for subnet, groups in (("control", ("etcd", "control_plane")), ("nodes", ("nodes", "gpu"))):
        layers = layers_of(groups)
        wanted = {("icmp", "*")}
        for row in all_listeners():
            others = row.clients and row.address_on(values, "10.20.0.4") != "127.0.0.1"
            if row.layer in layers and others and row.is_on(values):
                wanted.add((row.protocol, str(row.port_on(values))))
        assert ports_of(resources, f"ironspan-example-nsg-{subnet}") == wanted
    assert ("tcp", "2379") not in ports_of(resources, "ironspan-example-nsg-nodes")
    assert ("tcp", "2381") not in ports_of(resources, "ironspan-example-nsg-control")


def test_ports_that_a_site_changes_are_the_ones_that_are_opened() -> None:
    changed = {
        "etcd_client_port": 12379,
        "nvidia_health_metrics_address": "0.0.0.0",
        "control_plane_port": 16443,
    }
    assert set(changed) <= set(VARIABLES)
    resources = inner(made(**RICH, **changed), "network")
    assert ("tcp", "12379") in ports_of(resources, "ironspan-example-nsg-control")
    assert ("tcp", "2379") not in ports_of(resources, "ironspan-example-nsg-control")
    (balancer,) = of_kind(resources, "loadBalancers").values()
    (rule,) = balancer["properties"]["loadBalancingRules"]
    assert (rule["properties"]["frontendPort"], rule["properties"]["backendPort"]) == (6443, 16443)


def test_the_last_rule_denies_and_probes_come_before_it() -> None:
    for group in of_kind(inner(made(), "network"), "networkSecurityGroups").values():
        rules = [rule["properties"] for rule in group["properties"]["securityRules"]]
        assert rules == sorted(rules, key=lambda rule: rule["priority"])
        assert (rules[-1]["access"], rules[-1]["priority"]) == ("Deny", 4096)
        assert rules[-2]["sourceAddressPrefix"] == "AzureLoadBalancer"


def test_etcd_is_open_to_servers_and_to_nobody_else() -> None:
    group = of_kind(inner(made(), "network"), "networkSecurityGroups")["ironspan-example-nsg-control"]
    rules = {rule["name"]: rule["properties"] for rule in group["properties"]["securityRules"]}
    assert rules["allow-etcd-clients"]["sourceAddressPrefixes"] == ["10.20.0.0/24"]
    assert rules["allow-ssh"]["sourceAddressPrefixes"] == ["10.9.0.0/24"]
    assert rules["allow-api-server"]["sourceAddressPrefixes"] == [
        "10.1.0.0/16",
        "10.9.0.0/24",
        "10.20.0.0/24",
        "10.20.8.0/21",
    ]


def test_nothing_is_reached_from_the_internet() -> None:
    """Every property of that name says so, and every account and vault has one."""
    resources = inner(made(**RICH), "data") + inner(made(**RICH), "machines")
    said = [text for path, text in texts(resources) if path.endswith("publicNetworkAccess")]
    assert set(said) == {"Disabled"}
    kinds = ("storageAccounts", "vaults", "disks")
    assert len(said) == sum(len(of_kind(resources, kind)) for kind in kinds) == 6


def test_each_identity_has_its_roles_and_no_more() -> None:
    resources = inner(made(**RICH), "data")
    given: dict[str, set[str]] = {}
    for one in of_kind(resources, "roleAssignments").values():
        principal = one["properties"]["principalId"]
        name = principal.split("/")[-1].split("'")[0].removeprefix("ironspan-example-id-")
        given.setdefault(name, set()).add(one["scope"].rpartition("/")[2])
        assert ("principalType" in one["properties"]) is principal.startswith("[")
    assert given == {
        **{f"etcd-{number}": {"ironspan-example-key-backup", "etcd-backup"} for number in (1, 2, 3)},
        **{f"control-plane-{number}": {"ironspan-example-key-kms"} for number in (1, 2, 3)},
        "burst": {"models"},
        PERSON: {"ironspan-example-key-pki", "etcd-backup", "models"},
    }


def test_writers_of_backups_may_not_delete() -> None:
    definitions = of_kind(inner(made(**RICH), "data"), "roleDefinitions").values()
    writers = [one["properties"] for one in definitions if "writer" in one["properties"]["roleName"]]
    (permissions,) = writers[0]["permissions"]
    assert [action for action in permissions["dataActions"] if "delete" in action.lower()] == []
    assert writers[0]["assignableScopes"] == [
        f"/subscriptions/{SUBSCRIPTION}/resourceGroups/ironspan-example-data"
    ]


def test_no_key_of_the_vault_ends() -> None:
    for key in of_kind(inner(made(**RICH), "data"), "vaults/keys").values():
        assert "exp" not in key["properties"]["attributes"]
        assert key["properties"]["kty"] == "RSA-HSM"


def test_a_pool_is_one_that_azure_lets_grow() -> None:
    (pool,) = of_kind(inner(made(**RICH), "nodes"), "virtualMachineScaleSets").values()
    assert pool["properties"]["orchestrationMode"] == "Flexible"
    assert pool["properties"]["platformFaultDomainCount"] == 1
    profile = pool["properties"]["virtualMachineProfile"]
    assert (profile["priority"], profile["billingProfile"]) == ("Spot", {"maxPrice": -1})
    assert "customData" not in profile["osProfile"]
    assert pool["tags"]["ironspan-pool"] == "burst"


def test_machines_of_one_infiniband_are_in_one_availability_set_and_in_no_zone() -> None:
    gang = {"name": "gang", "groups": ["nodes", "gpu"], "size": "Standard_ND96isr_H100_v5", "count": 2}
    estate = made(azure_machines=[*SMALL["azure_machines"], {**gang, "gangs": True}])
    resources = inner(estate, "machines")
    (fabric,) = of_kind(resources, "availabilitySets")
    assert fabric == "ironspan-example-fabric-gang"
    machines = of_kind(resources, "virtualMachines")
    for name in ("gang-1", "gang-2"):
        assert machines[name]["properties"]["availabilitySet"]["id"].endswith(f"/availabilitySets/{fabric}")
        assert "zones" not in machines[name]
        assert any(one.endswith(fabric) for one in machines[name]["dependsOn"])
    assert "availabilitySet" not in machines["etcd-1"]["properties"]
    assert machines["etcd-1"]["zones"] == ["1"]


ROUTED: dict[str, t.Any] = {
    **RICH,
    "site_cni": "cilium",
    "cilium_routing": "native",
    "azure_outbound": {"kind": "firewall", "next_hop": "10.9.0.9"},
    "azure_pools": [{**RICH["azure_pools"][0], "pods": "routed"}],
    "azure_pod_routes": [
        {"node": "control-plane-1", "part": "10.244.0.0/24", "address": "10.20.0.32"},
        {"node": "burst-1", "part": "10.244.7.0/24", "address": "10.20.8.20"},
    ],
}


def test_routes_lead_to_the_pods_of_each_node_from_machines_and_from_the_gateway() -> None:
    resources = inner(made(**ROUTED), "network")
    tables = of_kind(resources, "routeTables")
    routes = {
        name: {one["name"]: one["properties"]["addressPrefix"] for one in table["properties"]["routes"]}
        for name, table in tables.items()
    }
    to_pods = {"pods-control-plane-1": "10.244.0.0/24", "pods-burst-1": "10.244.7.0/24"}
    assert routes == {
        "ironspan-example-routes": {"out": "0.0.0.0/0", **to_pods},
        "ironspan-example-routes-gateway": to_pods,
    }
    (network,) = of_kind(resources, "virtualNetworks").values()
    taken = {
        one["name"]: one["properties"].get("routeTable", {}).get("id", "").rpartition("/")[2]
        for one in network["properties"]["subnets"]
    }
    assert taken == {
        "control": "ironspan-example-routes",
        "nodes": "ironspan-example-routes",
        "endpoints": "",
        "GatewaySubnet": "ironspan-example-routes-gateway",
    }
    assert {one.rpartition("/")[2] for one in network["dependsOn"]} >= {*tables}


def test_interfaces_of_nodes_take_packets_of_pods_and_those_of_etcd_do_not() -> None:
    estate = made(**ROUTED)
    interfaces = of_kind(inner(estate, "machines"), "networkInterfaces")
    forwarding = {name for name, one in interfaces.items() if one["properties"]["enableIPForwarding"]}
    assert forwarding == {f"ironspan-example-nic-control-plane-{number}" for number in (1, 2, 3)}
    (pool,) = of_kind(inner(estate, "nodes"), "virtualMachineScaleSets").values()
    profile = pool["properties"]["virtualMachineProfile"]["networkProfile"]
    (interface,) = profile["networkInterfaceConfigurations"]
    assert interface["properties"]["enableIPForwarding"] is True


def test_security_groups_let_pods_that_nothing_wraps_through() -> None:
    groups = of_kind(inner(made(**ROUTED), "network"), "networkSecurityGroups")
    for what in ("control", "nodes"):
        rules = {
            one["name"]: one["properties"]
            for one in groups[f"ironspan-example-nsg-{what}"]["properties"]["securityRules"]
        }
        between = rules["allow-pods"]
        assert between["destinationAddressPrefix"] == "10.244.0.0/16"
        assert "10.244.0.0/16" in between["sourceAddressPrefixes"]
        assert between["protocol"] == "*"
    assert not any(
        "10.244.0.0/16" in one["properties"].get("sourceAddressPrefixes", ())
        for one in groups["ironspan-example-nsg-endpoints"]["properties"]["securityRules"]
    )


def test_a_pod_network_that_wraps_needs_nothing_of_the_virtual_network() -> None:
    estate = made(azure_pools=RICH["azure_pools"])
    assert of_kind(inner(estate, "network"), "routeTables") == {}
    assert "10.244." not in str(template(estate))


def test_nobody_waits_for_the_gateway() -> None:
    resources = {one["name"]: one for one in template(made(**RICH))["resources"] if "dependsOn" in one}
    waiting = [name for name, one in resources.items() if "gateway" in " ".join(one["dependsOn"])]
    assert waiting == []
    assert "ironspan-example-gateway" in resources


def test_a_network_that_exists_is_referenced_and_not_touched() -> None:
    network = (
        f"/subscriptions/{SUBSCRIPTION}/resourceGroups/hub/providers/Microsoft.Network/virtualNetworks/hub"
    )
    estate = made(azure_existing={"virtual_network": network, "subnets": {"control": "servers"}})
    resources = inner(estate, "network")
    kinds = {one["type"].rpartition("/")[2] for one in resources}
    assert kinds & {"virtualNetworks", "networkSecurityGroups", "routeTables"} == set()
    (balancer,) = of_kind(resources, "loadBalancers").values()
    (front,) = balancer["properties"]["frontendIPConfigurations"]
    assert front["properties"]["subnet"]["id"] == f"{network}/subnets/servers"


def test_what_exists_gets_an_endpoint_and_is_not_made() -> None:
    vault = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/hub/providers/Microsoft.KeyVault/vaults/hub-keys"
    resources = inner(made(azure_existing={"vault": vault}), "data")
    assert of_kind(resources, "vaults") == {}
    endpoint = of_kind(resources, "privateEndpoints")["ironspan-example-endpoint-vault"]
    (link,) = endpoint["properties"]["privateLinkServiceConnections"]
    assert link["properties"]["privateLinkServiceId"] == vault


def test_adding_to_a_set_moves_no_address() -> None:
    before = {machine.name: machine.address for machine in made().machines}
    sets = [{**SMALL["azure_machines"][0], "count": 5}, SMALL["azure_machines"][1]]
    after = {machine.name: machine.address for machine in made(azure_machines=sets).machines}
    assert after.items() >= before.items()
    assert before["etcd-1"] == "10.20.0.16"
    assert before["control-plane-3"] == "10.20.0.34"
