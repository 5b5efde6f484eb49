# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What kube-proxy, the hosts file and the cluster's objects are told."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Callable

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import owned
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.objects import name_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import ROLES_FOLDER

from tests.unit.roles.conftest import INVENTORIES, Rendered

Render = Callable[..., Rendered]


HOSTS = [
    ("servers", 5, {"az-1", "az-2", "az-3", "rack-1", "api.lab.internal"}),
    ("site", 6, {"az-1", "az-2", "az-3", "rack-1", "rack-2", "api.lab.internal"}),
    ("endpoint", 1, {"api.lab.internal"}),
]


@pytest.mark.parametrize(("setting", "count", "names"), HOSTS)
def test_hosts(render: Render, setting: str, count: int, names: set[str]) -> None:
    entries = render(variables={"base_hosts_entries": setting}).resources("rack-1")["base/hosts"]["entries"]
    assert len(entries) == count
    assert {name for entry in entries for name in entry["names"]} == names


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"base_hosts_entries": "none"}, None),
        ({"base_hosts_entries": "endpoint", "site_api_endpoint": "10.98.0.13:8443"}, []),
    ],
)
def test_hosts_without_names_of_the_site(
    render: Render, variables: dict[str, t.Any], expected: list[t.Any] | None
) -> None:
    resource = render(variables=variables).resources("rack-1").get("base/hosts")
    assert (resource and resource["entries"]) == expected


def test_flannel_network(render: Render) -> None:
    objects = {item["kind"]: item for item in render().renderer.objects("flannel")}
    network = json.loads(objects["ConfigMap"]["data"]["net-conf.json"])
    assert network == {
        "Network": "10.244.0.0/16",
        "EnableNFTables": True,
        # flannel takes the 50 bytes of vxlan off this number itself.
        "Backend": {"Type": "vxlan", "VNI": 1, "Port": 8472, "MTU": 1400},
    }
    plugins = json.loads(objects["ConfigMap"]["data"]["cni-conf.json"])
    assert [plugin["type"] for plugin in plugins["plugins"]] == ["flannel", "portmap"]


def test_flannel_restarts_with_its_configuration(render: Render) -> None:
    def annotation(variables: dict[str, t.Any]) -> str:
        (daemon,) = [
            o for o in render(variables=variables).renderer.objects("flannel") if o["kind"] == "DaemonSet"
        ]
        return str(daemon["spec"]["template"]["metadata"]["annotations"]["ironspan.io/configuration"])

    assert annotation({}) != annotation({"site_wan_mtu": 1300})
    assert annotation({}) == annotation({"flannel_max_unavailable": "1%"})


def test_flannel_uses_the_address_of_the_inventory(render: Render) -> None:
    (daemon,) = [o for o in render().renderer.objects("flannel") if o["kind"] == "DaemonSet"]
    (container,) = daemon["spec"]["template"]["spec"]["containers"]
    sources = {entry["name"]: entry.get("valueFrom", {}).get("fieldRef", {}) for entry in container["env"]}
    assert sources["HOST_ADDRESS"]["fieldPath"] == "status.hostIP"
    assert "--iface=$(HOST_ADDRESS)" in container["args"]
    assert container["image"] == "ghcr.io/flannel-io/flannel:v0.28.4"
    assert container["securityContext"]["privileged"] is False


@pytest.mark.parametrize("inventory", INVENTORIES)
def test_gvisor_runtime_class(render: Render, inventory: str) -> None:
    (runtime_class,) = render(inventory).renderer.objects("gvisor")
    assert runtime_class["metadata"]["name"] == "gvisor"
    assert runtime_class["handler"] == "runsc"
    assert runtime_class["overhead"] == {"podFixed": {"cpu": "50m", "memory": "56Mi"}}
    assert runtime_class["scheduling"]["nodeSelector"] == {"ironspan.io/gvisor": "true"}


@pytest.mark.parametrize("inventory", INVENTORIES)
def test_the_runtime_class_selects_exactly_the_hosts_with_gvisor(render: Render, inventory: str) -> None:
    (runtime_class,) = render(inventory).renderer.objects("gvisor")
    selector = runtime_class["scheduling"]["nodeSelector"].items()
    site = render(inventory).site
    selected = {host.name for host in site.hosts.values() if selector <= host.labels.items()}
    assert selected == {host.name for host in site.group("gvisor")} != set()


LAYERS = sorted(path.parent.name for path in ROLES_FOLDER.glob("*/objects.yml.j2"))
SHARED = {
    "control_plane": {
        "ClusterRoleBinding kubeadm:get-nodes",
        "ClusterRoleBinding kubeadm:kubelet-bootstrap",
        "ClusterRoleBinding kubeadm:node-autoapprove-bootstrap",
    },
    "dns": {
        "ConfigMap kube-system/coredns",
        "Deployment kube-system/coredns",
        "Service kube-system/kube-dns",
    },
    "egress": {"Namespace research"},
}
"""What others made, or have their things in: it is never deleted."""
EVERYTHING = {
    "access_enabled": True,
    "dns_managed": True,
    "access_roles": [{"role": "node-operator", "approvals": 1, "cluster_wide": True}],
    "access_requester_groups": ["entra:people"],
    "access_approver_groups": ["entra:leads"],
    "gpu_repair_enabled": True,
    "egress_enabled": True,
    "egress_namespaces": [{"name": "research"}],
    "identity_tenant_id": "11111111-2222-3333-4444-555555555555",
    "identity_audiences": ["99999999-8888-7777-6666-555555555555"],
    "identity_bindings": [{"group": "Operators", "role": "node-operator"}],
}


@pytest.mark.parametrize("layer", LAYERS)
def test_every_object_says_whose_it_is_and_can_be_found_again(render: Render, layer: str) -> None:
    rendered = render(variables=EVERYTHING, more="gpu: {hosts: rack-1}\n")
    objects = rendered.renderer.objects(layer)
    assert objects or layer in ("cilium", "gvisor")
    assert {item["metadata"]["labels"][owned.SITE] for item in objects} <= {rendered.renderer._site.name}
    owners = {name_of(item): item["metadata"]["labels"][owned.LAYER] for item in objects}
    assert {name for name, owner in owners.items() if owner == owned.SHARED} == SHARED.get(layer, set())
    assert set(owners.values()) <= {layer, owned.SHARED}
    kept = {item["kind"] for item in objects if owners[name_of(item)] == layer}
    assert kept <= owned.KINDS.keys(), "what is not in the list is never found again"
