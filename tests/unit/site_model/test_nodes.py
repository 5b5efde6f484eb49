# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What no node lives with: amounts without a unit, registries that nobody asks, interfaces that are none."""

from __future__ import annotations

import datetime

import pytest

from .conftest import Example
from .mutations import ALL, GPU, HOSTS

SOON = str(datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(days=30))
CLOSED = "egress_enabled: true\n"
CILIUM = "site_cni: cilium\n"
ENTRY = "destination: 10.0.0.9, ports: [1], owner: a, reason: b"
REST = "registry.k8s.io, ghcr.io, quay.io"
WRONG = (
    ("node_kubelet_system_reserved: {memory: 2}", "2 is a handful of bytes of memory"),
    ("node_kubelet_kube_reserved: {ephemeral-storage: 256}", "256 is a handful of bytes"),
    ("node_kubelet_system_reserved: {cpu: 100}", "more than any host has of cpu"),
    ("node_kubelet_eviction_hard: {memory.available: 100}", "is a handful of bytes"),
    ("node_kubelet_eviction_hard: {nodefs.available: 100%}", "no pod would ever stay"),
    ("node_kubelet_resolv_conf: /run/systemd/resolve/stub-resolv.conf", "names the host's own resolver"),
    ("node_kubelet_resolv_conf: /etc/", "is a folder"),
    ("node_cgroup_versions: [1]", "there the kubelet refuses to start"),
    ("node_kubelet_settings: {cpuManagerPolicyOptions: {full-pcpus-only: 'true'}}", "for the policy static"),
    ("node_prepull_images: ['nvcr.io/nvidia/cuda:12']", "nvcr.io is no registry that hosts ask"),
    ("containerd_registries: [docker.io]", "lacks registry.k8s.io and ghcr.io"),
    (f"{CILIUM}containerd_registries: [registry.k8s.io, ghcr.io]", "lacks quay.io"),
    (f"containerd_registries: [Docker.io, {REST}]", "write docker.io"),
    (f"containerd_registries: [index.docker.io, {REST}]", "are those of docker.io; write docker.io"),
    (f"containerd_registries: ['r.example.com:99999', {REST}]", "99999 is no port"),
    ("containerd_direct_registries: [harbor]", "without a dot or a port it is no registry"),
    ("containerd_cni_plugins: [bridge, host-local, portmap]", "lacks loopback, without which flannel"),
    ("gvisor_shim_artifact: containerd-shim-runsc-v1-lab", "which only labs are"),
    (f"{CILIUM}cilium_operator_replicas: 10\ncilium_operator_replicas_x: 1", "unknown variable"),
    (f"{CILIUM}control_plane_conntrack_min: 1", "is for kube-proxy, whose place Cilium takes"),
    (f"{CLOSED}egress_resolvers: [10.244.0.10]", "lies in site_pod_cidr"),
    (f"{CLOSED}egress_resolvers: [127.0.0.53]", "127.0.0.53 is a loopback address"),
    (f"{CLOSED}egress_node_ports: [9100]\negress_node_networks: [10.99.0.0/16]", "the address of no host"),
    (f"{CLOSED}egress_pod_interfaces: [eth0]", "lacks cni0"),
    (f"{CLOSED}egress_pod_interfaces: [flannel.1]", "lacks cni0"),
    (f"{CLOSED}egress_overlay_interfaces: []", "lacks flannel.1"),
    (f"{CLOSED}egress_overlay_interfaces: [cilium_vxlan]", "lacks flannel.1"),
    (f"{CLOSED}flannel_vni: 7", "write egress_overlay_interfaces: [flannel.7]"),
    (f"egress_allow: [{{{ENTRY}, expires: {SOON}}}]", "is a date"),
)
RIGHT = (
    "node_kubelet_system_reserved: {memory: 0, cpu: 4, pid: 1000}",
    "node_kubelet_kube_reserved: {memory: '268435456', cpu: '0.5'}",
    "node_kubelet_eviction_hard: {memory.available: 0%, nodefs.inodesFree: 5000, pid.available: 200}",
    "node_kubelet_resolv_conf: /run/systemd/resolve/resolv.conf",
    "node_cgroup_versions: [1, 2]",
    "node_cgroup_versions: [1]\nnode_kubelet_fail_cgroup_v1: false",
    "node_prepull_images: ['docker.io/library/busybox:1.37', quay.io/a/b@sha256:" + "0" * 64 + "]",
    "containerd_registries: [ghcr.io]\ncontainerd_direct_registries: [registry.k8s.io, 'harbor:5000']",
    "containerd_direct_registries: [docker.io]",
    f"{CILIUM}containerd_registries: [registry.k8s.io, quay.io]\ncontainerd_cni_plugins: [loopback]",
    f"{CLOSED}egress_resolvers: [169.254.169.253, 168.63.129.16]",
    f"{CLOSED}egress_pod_interfaces: [cni0, 'veth*']\negress_overlay_interfaces: ['flannel.*']",
    f"{CILIUM}{CLOSED}egress_pod_interfaces: ['lxc*']\negress_overlay_interfaces: [cilium_vxlan]",
)


@pytest.mark.parametrize(("lines", "says"), WRONG)
def test_what_no_node_lives_with(example: Example, lines: str, says: str) -> None:
    example.append(ALL, f"{lines}\n")
    found = [problem for problem in example.problems() if says in str(problem)]
    at = example.line(ALL, lines.splitlines()[-1])
    assert [problem.line for problem in found] == [at], example.problems()


@pytest.mark.parametrize("lines", RIGHT)
def test_what_nodes_live_with(example: Example, lines: str) -> None:
    example.append(ALL, f"{lines}\n")
    assert example.problems() == []


def test_the_overlay_of_cilium(example: Example) -> None:
    example.append(ALL, f"{CILIUM}{CLOSED}egress_pod_interfaces: ['lxc*']\n")
    (problem,) = example.problems()
    assert "lacks cilium_vxlan" in problem.message
    assert problem.line == example.line(ALL, "site_cni: cilium")


def test_more_operators_than_nodes(example: Example) -> None:
    example.append(ALL, f"{CILIUM}cilium_operator_replicas: 10\n")
    assert example.problems() == []
    racks = "        rack_a:\n        rack_b:\n"
    example.replace(HOSTS, f"    nodes:\n      children:\n{racks}", "    nodes:\n      children:\n")
    assert any("more than 5 nodes take" in problem.message for problem in example.problems())


def test_options_of_a_policy_that_is_static(example: Example) -> None:
    example.append(
        GPU,
        "node_kubelet_cpu_manager_policy: static\nnode_kubelet_reserved_cpus: 0-3\n"
        "node_kubelet_settings: {cpuManagerPolicyOptions: {full-pcpus-only: 'true'}}\n",
    )
    assert example.problems() == []
