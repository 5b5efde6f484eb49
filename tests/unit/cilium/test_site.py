# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A site that chooses Cilium: its layers, its documents, and mistakes that are refused with their line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import day_zero
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers, layers_of

from tests.unit.roles.conftest import index
from tests.unit.site_model.conftest import Example

ALL = "group_vars/all.yml"
CHOSEN = "site_cni: cilium\n"


@pytest.fixture
def example(tmp_path: Path) -> Example:
    """Return a copy of the example inventory."""
    return Example(tmp_path / "example")


def test_a_host_has_one_pod_network() -> None:
    for cni in all_layers().pod_networks:
        layers = layers_of(("nodes", "gvisor"), cni)
        assert [layer for layer in layers if layer in all_layers().pod_networks] == [cni]
        assert list(layers) == [layer for layer in all_layers().order if layer in layers]
    assert layers_of(("nodes",)) == layers_of(("nodes",), "flannel")
    assert "cilium" not in layers_of(("haproxy",), "cilium")


def test_a_sound_site(example: Example) -> None:
    example.append(ALL, CHOSEN)
    # Another index than this machine's own, which may lack Cilium.
    (example.folder.parent / "index.json").write_text(index())
    site = example.site(extra_vars={"site_artifacts_index": str(example.folder.parent / "index.json")})
    assert site.cni == "cilium"
    assert all("flannel" not in host.layers for host in site.hosts.values())


@pytest.mark.parametrize(
    ("lines", "at", "says", "remedy"),
    [
        ("site_cni: calico\n", "site_cni", "is not one of flannel, cilium", "write flannel"),
        ("cilium_routing: native\n", "cilium_routing", "the pod network is flannel", "site_cni: cilium"),
        (CHOSEN + "flannel_port: 8472\n", "flannel_port", "is for flannel", "take it out"),
        (CHOSEN + "control_plane_kube_proxy_mode: iptables\n", "kube_proxy", "for kube-proxy", "take it out"),
        (CHOSEN + "cilium_mtu: 1401\n", "cilium_mtu", "larger than the path's 1400", "write 1400 or less"),
        (CHOSEN + "cilium_mtu: 100\n", "cilium_mtu", "smaller than 1280", "or 0"),
        (
            CHOSEN + "cilium_agent_capabilities_dropped: [SYS_RESOURCE]\n",
            "cilium_agent",
            "only a lab's machine",
            "take it out",
        ),
        (CHOSEN + "cilium_kernel_sysctl_folder: /tmp\n", "cilium_kernel", "only a lab's", "take it out"),
        (CHOSEN + "egress_enabled: true\n", "egress_enabled", "hosts' tables would see no", '["lxc*"]'),
        (CHOSEN + "site_pod_cidr_ipv6: fd00:10:244::/48\n", "site_pod_cidr_ipv6", "IPv4 addresses", ""),
        (CHOSEN + "dns_node_cache: true\n", "dns_node_cache", "go past Cilium's policies", "false"),
        (CHOSEN + 'cilium_version: "1.2"\n', "cilium_version", "1.2 is not in artifacts.lock.yml", "1.20.1"),
    ],
)  # fmt: skip
def test_mistakes(example: Example, lines: str, at: str, says: str, remedy: str) -> None:
    example.append(ALL, lines)
    found = [problem for problem in example.problems() if says in problem.message]
    assert len(found) == 1, example.problems()
    assert remedy in found[0].remedy
    assert found[0].file == str(example.folder / ALL)
    if "egress_enabled" not in at:
        assert found[0].line == example.line(
            ALL, f"{at}" if at in lines.split(":")[0] else lines.splitlines()[-1]
        )


def test_a_proxy_beside_cilium_is_no_node(example: Example) -> None:
    example.append(ALL, CHOSEN + "egress_namespaces: [{name: a}]\n")
    said = "Cilium lets no pod of egress_namespaces to a port of a node"
    assert not [problem for problem in example.problems() if said in problem.message]
    (example.folder / "proxy.yml").write_text("egress_proxy: {hosts: {gpu-a-01: {}}}\n")
    (problem,) = [problem for problem in example.problems() if said in problem.message]
    assert problem.message.startswith("gpu-a-01 has a kubelet")
    assert problem.file.endswith("proxy.yml")


def test_a_lab_has_what_cilium_would_need_at_hand(example: Example) -> None:
    example.append(ALL, "site_lab: true\ncilium_kernel_modules: []\ncilium_kernel_sysctl_folder: /lab\n")
    assert example.problems() == []


@pytest.mark.parametrize(("before", "now"), [("flannel", "cilium"), ("cilium", "flannel"), (None, "cilium")])
def test_a_running_cluster_is_migrated_not_switched(example: Example, before: str | None, now: str) -> None:
    store = example.folder.parent / "pki"
    store.mkdir()
    (store / "store.json").write_text(json.dumps({"site_uid": "a"}))
    made = {"site_uid": "a", "site_pod_cidr": "10.244.0.0/16", **({"site_cni": before} if before else {})}
    day_zero.file_of(str(store)).write_text(json.dumps(made))
    example.append(ALL, f"site_cni: {now}\n")
    problems = example.problems(extra_vars={"site_pki_store": str(store)})
    (problem,) = [one for one in problems if "was made with" in one.message]
    assert problem.message == f"is {now}, and the cluster was made with {before or 'flannel'}"
    assert "migration (docs/cilium.md" in problem.remedy
    assert problem.line == example.line(ALL, "site_cni")
    made["site_cni"] = now
    day_zero.file_of(str(store)).write_text(json.dumps(made))
    assert not [
        one
        for one in example.problems(extra_vars={"site_pki_store": str(store)})
        if "was made" in one.message
    ]
