# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documents and objects of a site whose pod network is Cilium."""

from __future__ import annotations

import hashlib
import json
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.action import cilium_alone
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources._kubeadm_phases import cluster_phases
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.documents import Renderer
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.egress import METADATA

from tests.support.public_side import PublicSide
from tests.unit.cilium.test_objects import MANIFESTS

from .conftest import index
from .test_egress import ON, SOON, Render

KEY = "cilium-manifests/1.20.1/amd64"


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the index of a mirror that has small manifests."""
    folder = tmp_path_factory.mktemp("mirror")
    data = yaml.safe_dump_all(MANIFESTS).encode()
    (folder / "cilium.yml").write_bytes(data)
    content = json.loads(index())
    content["artifacts"][KEY] = {"path": "/cilium.yml", "sha256": hashlib.sha256(data).hexdigest(), "size": 1}
    (folder / "index.json").write_text(json.dumps(content))
    return folder / "index.json"


def chosen(mirror: Path, **more: t.Any) -> dict[str, t.Any]:
    """Return the variables of a site with Cilium."""
    return {"site_cni": "cilium", "site_artifacts_index": str(mirror), **more}


def test_what_the_site_says_comes_into_the_manifests(render: Render, mirror: Path) -> None:
    made = render("lab", chosen(mirror, site_wan_mtu=1380, site_node_cidr_mask=25))
    objects = {item["kind"]: item for item in made.renderer.objects("cilium")}
    data = objects["ConfigMap"]["data"]
    assert data["mtu"] == "1380" and data["cluster-pool-ipv4-mask-size"] == "25"
    assert data["cluster-pool-ipv4-cidr"] == made.site.pod_cidr
    environment = objects["DaemonSet"]["spec"]["template"]["spec"]["containers"][0]["env"]
    assert environment[0]["value"] == made.site.api_address
    planes = len(made.site.group("control_plane"))
    assert objects["Deployment"]["spec"]["replicas"] == (2 if planes > 1 else 1)
    assert made.renderer.objects("flannel") == []


def test_a_host_has_neither_flannel_nor_kube_proxy(render: Render, mirror: Path) -> None:
    made = render("lab", chosen(mirror))
    plain = render("lab")
    for host in ("rack-1", "az-1"):
        identifiers = set(made.resources(host))
        assert {"node/image-cilium", "node/image-operator-generic"} <= identifiers
        assert not {"node/image-kube-proxy", "node/image-flannel", "flannel/plugin"} & identifiers
        assert "node/image-kube-proxy" in plain.resources(host)
        foreign = {entry["path"] for entry in made.document(host)["fitness"]["foreign"]}
        assert "/etc/cni/net.d/10-flannel.conflist" in foreign
        assert "/etc/cni/net.d/05-cilium.conflist" not in foreign
        foreign = {entry["path"] for entry in plain.document(host)["fitness"]["foreign"]}
        assert "/etc/cni/net.d/05-cilium.conflist" in foreign


def test_only_a_lab_keeps_the_agent_from_its_kernel(render: Render, mirror: Path) -> None:
    lab = render("lab", chosen(mirror)).resources("rack-1")
    assert lab["cilium/kernel-setting-unprivileged_bpf_disabled"]["content"] == "1\n"
    assert not [name for name in lab if name.startswith("cilium/module-")]
    real = render("example", chosen(mirror))
    (name, *_) = (host.name for host in real.site.hosts.values() if "cilium" in host.layers)
    resources = real.resources(name)
    assert not [each for each in resources if each.startswith("cilium/kernel-setting")]
    assert "cilium/module-vxlan" in resources


def test_a_labs_host_is_not_asked_for_what_its_namespace_hides(render: Render, mirror: Path) -> None:
    def asked(inventory: str) -> set[str]:
        made = render(inventory, chosen(mirror))
        name = next(host.name for host in made.site.hosts.values() if "cilium" in host.layers)
        return {each["path"] for each in made.document(name)["fitness"]["files"]}

    assert asked("example") - asked("lab") == {"/proc/sys/net/core/bpf_jit_enable"}


def test_kubeadm_is_told_that_there_is_no_kube_proxy(render: Render, mirror: Path) -> None:
    def config(made: t.Any) -> str:
        return str(made.resources("az-1")["control_plane/member"]["config"])

    cilium, flannel = config(render("lab", chosen(mirror))), config(render("lab"))
    (cluster,) = [one for one in yaml.safe_load_all(cilium) if one["kind"] == "ClusterConfiguration"]
    assert cluster["proxy"] == {"disabled": True}
    assert "KubeProxyConfiguration" not in cilium and "KubeProxyConfiguration" in flannel
    assert cluster_phases(cilium) == (("upload-config", "all"),)
    assert len(cluster_phases(flannel)) == 2


def test_only_cilium_gives_nodes_their_parts_of_the_pod_network(render: Render, mirror: Path) -> None:
    def flags(made: t.Any) -> dict[str, str]:
        documents = yaml.safe_load_all(made.resources("az-1")["control_plane/member"]["config"])
        (cluster,) = [one for one in documents if one["kind"] == "ClusterConfiguration"]
        return {each["name"]: each["value"] for each in cluster["controllerManager"]["extraArgs"]}

    cilium, flannel = flags(render("lab", chosen(mirror))), flags(render("lab"))
    assert cilium["allocate-node-cidrs"] == "false" and "node-cidr-mask-size" not in cilium
    assert "allocate-node-cidrs" not in flannel and flannel["node-cidr-mask-size"] == "24"


ENTRY: dict[str, t.Any] = {"owner": "a", "reason": "b", "expires": SOON, "ports": [443, "8000-8100"]}


def test_names_are_followed_and_look_ups_are_narrow(render: Render, mirror: Path) -> None:
    names = {
        "egress_allow": [
            {**ENTRY, "destination": "Models.Example.com"},
            {**ENTRY, "destination": "logs.example.com", "namespaces": ["b"], "protocol": "udp"},
            {**ENTRY, "destination": "203.0.113.0/24"},
        ],
        "egress_namespaces": [{"name": "a"}, {"name": "b"}],
    }
    objects = render("lab", chosen(mirror, **names)).renderer.objects("egress")
    by_name = {
        item["metadata"]["namespace"]: item["spec"]
        for item in objects
        if item["kind"] == "CiliumNetworkPolicy"
    }
    assert by_name["a"]["egressDeny"] == [{"toCIDR": list(METADATA)}]
    dns, models = by_name["a"]["egress"]
    assert dns["toPorts"][0]["rules"]["dns"] == [
        {"matchPattern": "**.cluster.local"},
        {"matchName": "models.example.com"},
    ]
    ports = [{"protocol": "TCP", "port": "443"}, {"protocol": "TCP", "port": "8000", "endPort": 8100}]
    assert models == {"toFQDNs": [{"matchName": "models.example.com"}], "toPorts": [{"ports": ports}]}
    assert [rule["toFQDNs"] for rule in by_name["b"]["egress"][1:]] == [
        [{"matchName": "models.example.com"}],
        [{"matchName": "logs.example.com"}],
    ]
    # Denial is a policy of its own, of a kind that the API itself checks; addresses come as before.
    kinds = {
        (item["metadata"]["namespace"], item["metadata"]["name"]): item["spec"]
        for item in objects
        if item["kind"] == "NetworkPolicy"
    }
    assert kinds["a", "ironspan-default-deny"] == {
        "podSelector": {},
        "policyTypes": ["Ingress", "Egress"],
    }
    (rule,) = kinds["a", "ironspan-allowed"]["egress"]
    assert rule["to"] == [{"ipBlock": {"cidr": "203.0.113.0/24"}}]


def test_api_servers_are_named_as_what_they_are_to_cilium(render: Render, mirror: Path) -> None:
    namespaces = {"egress_namespaces": [{"name": "a", "api": True}, {"name": "b"}]}

    def egress(variables: dict[str, t.Any], kind: str, namespace: str) -> str:
        for item in render("lab", variables).renderer.objects("egress"):
            found = (item["kind"], item["metadata"].get("namespace"))
            if found == (kind, namespace) and item["metadata"]["name"] != "ironspan-default-deny":
                return json.dumps(item["spec"]["egress"])
        raise AssertionError(kind)

    cilium = chosen(mirror, **namespaces)
    port = {"ports": [{"port": "6443", "protocol": "TCP"}]}
    rule = {"toEntities": ["kube-apiserver"], "toPorts": [port]}
    assert rule in json.loads(egress(cilium, "CiliumNetworkPolicy", "a"))
    assert "toEntities" not in egress(cilium, "CiliumNetworkPolicy", "b")
    assert "6443" not in egress(cilium, "NetworkPolicy", "a")
    assert "6443" in egress({**ON, **namespaces}, "NetworkPolicy", "a")


def test_the_last_stage_of_a_move_applies_what_the_site_will_have(
    render: Render, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else agents would restart once more when site.yml runs with the inventory of after."""
    network = "10.250.0.0/16"
    before = render(
        "lab",
        chosen(mirror, site_cni="flannel", site_cni_migration_cidr=network, cilium_tunnel_port=8473),
    )
    after = render("lab", chosen(mirror, site_pod_cidr=network, cilium_tunnel_port=8473))
    monkeypatch.setattr(cilium_alone, "renderer_for", lambda site: (Renderer(site, PublicSide()), None))
    applied = cilium_alone.objects_alone(before.site)
    data = {item["kind"]: item for item in applied}["ConfigMap"]["data"]
    assert data["cluster-pool-ipv4-cidr"] == network and data["tunnel-port"] == "8473"
    assert not {"custom-cni-conf", "enable-policy", "unmanaged-pod-watcher-interval"} & set(data)
    assert applied == after.renderer.objects("cilium")
    assert applied != before.renderer.objects("cilium")


def test_both_networks_are_on_a_host_while_the_cluster_is_moved(render: Render, mirror: Path) -> None:
    moving = chosen(
        mirror, site_cni="flannel", site_cni_migration_cidr="10.250.0.0/16", cilium_tunnel_port=8473
    )
    interfaces = {
        "egress_pod_interfaces": ["cni0", "lxc*"],
        "egress_overlay_interfaces": ["flannel.1", "cilium_vxlan", "cilium_host"],
    }
    made = render("lab", {**moving, "egress_enabled": True, **interfaces})
    identifiers = set(made.resources("rack-1"))
    assert {
        "node/image-cilium",
        "node/image-flannel",
        "node/image-kube-proxy",
        "flannel/plugin",
    } <= identifiers
    fitness = made.document("rack-1")["fitness"]
    networks = {entry["path"] for entry in fitness["foreign"] if "/cni/" in entry["path"]}
    assert networks == {"/etc/cni/net.d/10-calico.conflist"}
    assert 10249 not in {entry["port"] for entry in fitness["ports_free"]}
    data = {item["kind"]: item for item in made.renderer.objects("cilium")}["ConfigMap"]["data"]
    assert data["cluster-pool-ipv4-cidr"] == "10.250.0.0/16"
    assert data["tunnel-port"] == "8473" and data["enable-policy"] == "never"
    assert made.renderer.objects("flannel") and made.site.cni == "flannel"
    # What pods may not reach stays closed to the pods of both networks.
    table = made.content("rack-1", "egress/table")
    both = "{ 10.244.0.0/16, 10.250.0.0/16 }"
    assert f"ip saddr {both} goto pods" in table and f"ip saddr != {both} goto drop_spoofed" in table
    assert 'iifname "lxc*" goto pods' in table and 'oifname "cilium_host" accept' in table
    config = str(made.resources("az-1")["control_plane/member"]["config"])
    assert "KubeProxyConfiguration" in config
