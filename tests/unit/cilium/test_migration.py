# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A site that is being moved to Cilium: what hosts and cluster get, and what is refused with its line."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cilium import migration
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers, layers_of

from tests.unit.cilium.test_objects import rendered
from tests.unit.roles.conftest import index
from tests.unit.site_model.conftest import Example

ALL = "group_vars/all.yml"
MOVING = "site_cni_migration_cidr: 10.250.0.0/16\ncilium_tunnel_port: 8473\n"
EGRESS = (
    'egress_enabled: true\negress_pod_interfaces: ["lxc*", cni0]\n'
    "egress_overlay_interfaces: [flannel.1, cilium_host, cilium_vxlan]\n"
)


@pytest.fixture
def example(tmp_path: Path) -> Example:
    """Return a copy of the example inventory, with a mirror that has Cilium."""
    return Example(tmp_path / "example")


def with_mirror(example: Example) -> dict[str, str]:
    file = example.folder.parent / "index.json"
    file.write_text(index())
    return {"site_artifacts_index": str(file)}


@pytest.mark.parametrize("more", ["", EGRESS])
def test_hosts_have_both_networks_while_the_cluster_is_moved(example: Example, more: str) -> None:
    example.append(ALL, MOVING + more)
    site = example.site(extra_vars=with_mirror(example))
    assert (site.cni, site.pod_networks[-1]) == ("flannel", "10.250.0.0/16")
    networks = all_layers().pod_networks
    for host in site.hosts.values():
        if "node" in host.layers:
            assert [layer for layer in host.layers if layer in networks] == list(networks)
    assert "cilium" not in layers_of(("haproxy",), "flannel", moving=True)


@pytest.mark.parametrize(
    ("lines", "variable", "says", "remedy"),
    [
        (MOVING.replace("10.250.0.0/16", "10.250.1.0/16"), "", "bits set behind its prefix", "10.250.0.0/16"),
        (MOVING.replace("10.250.0.0/16", "fd00::/48"), "", "is IPv6", "IPv4"),
        (MOVING.replace("10.250.0.0/16", "203.0.114.0/24"), "", "not a private network", "10.245.0.0/16"),
        (MOVING.replace("10.250.0.0/16", "10.250.0.0/25"), "", "room for 0 nodes", "or larger"),
        (MOVING + "site_planned_nodes: 500\n", "", "has or plans 500", "/15 or larger"),
        (MOVING + "egress_node_networks: [10.250.7.0/24]\n", "", "overlaps egress_node_networks", "apart"),
        (MOVING + "site_cni: cilium\n", "", "the pod network is Cilium", "take it out"),
        (MOVING.partition("\n")[0] + "\n", "cilium_tunnel_port", "port of flannel's tunnel", "8473"),
        (MOVING + "cilium_routing: native\n", "cilium_routing", "through a tunnel", "take it out"),
        (MOVING + "egress_enabled: true\n", "egress_pod_interfaces", "both pod networks", '[cni0, "lxc*"]'),
        (MOVING + "dns_node_cache: true\n", "dns_node_cache", "go past Cilium's policies", "false"),
        (MOVING + "cilium_mtu: 1401\n", "cilium_mtu", "larger than the path's 1400", "write 1400 or less"),
    ],
)  # fmt: skip
def test_mistakes(example: Example, lines: str, variable: str, says: str, remedy: str) -> None:
    example.append(ALL, lines)
    path = variable or "site_cni_migration_cidr"
    problems = example.problems()
    found = [problem for problem in problems if says in problem.message and problem.path == path]
    assert len(found) == 1, problems
    assert remedy in found[0].remedy
    assert found[0].file == str(example.folder / ALL)
    if variable in ("", *(line.partition(":")[0] for line in lines.splitlines())):
        assert found[0].line == example.line(ALL, f"{path}:")


@pytest.mark.parametrize("variable", ["site_pod_cidr", "site_service_cidr"])
def test_the_network_is_another_one(example: Example, variable: str) -> None:
    settings = yaml.safe_load((example.folder / ALL).read_text())
    taken = ipaddress.ip_network(settings.get(variable, "10.96.0.0/16"))
    example.append(ALL, MOVING.replace("10.250.0.0/16", str(taken)))
    assert [one for one in example.problems() if one.message.startswith(f"{taken} overlaps {variable}")]


def test_a_host_lies_in_neither(example: Example) -> None:
    address = next(iter(example.site().hosts.values())).address
    network = ipaddress.ip_network(f"{address}/24", strict=False)
    example.append(ALL, MOVING.replace("10.250.0.0/16", str(network)))
    said = f"{address} lies in site_cni_migration_cidr ({network})"
    assert [one for one in example.problems() if one.message == said]


def test_agents_beside_flannel_give_no_pod_an_address_and_stop_none() -> None:
    data = rendered(beside=True)["ConfigMap"]["data"]
    assert migration.BESIDE.items() <= data.items()
    assert migration.NETWORK_FILE not in data
    assert data["cluster-pool-ipv4-cidr"] == "10.244.0.0/16"
    alone = rendered()["ConfigMap"]["data"]
    assert alone["enable-host-legacy-routing"] == "false"
    assert not {"custom-cni-conf", "enable-policy"} & set(alone)


def test_a_moved_node_is_configured_as_in_the_end() -> None:
    made = migration.node_config()
    assert migration.NODE_CONFIG.endswith(f"{made['metadata']['namespace']}/ciliumnodeconfigs/ironspan-moved")
    assert made["spec"]["nodeSelector"]["matchLabels"] == {migration.LABEL: migration.MOVED}
    values = made["spec"]["defaults"]
    assert values["kube-proxy-replacement"] == "true"
    assert values[migration.NETWORK_FILE].endswith("/etc/cni/net.d/05-cilium.conflist")
    # Policies wait for the last node, and packets between the networks keep their way.
    assert not {"enable-policy", "enable-host-legacy-routing", "cni-uninstall"} & set(values)
