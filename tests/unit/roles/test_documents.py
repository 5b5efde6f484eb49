# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Every role renders for every host of the lab and of the example, to documents that the engine accepts."""

from __future__ import annotations

import typing as t
from collections.abc import Callable

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.document import read_document
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers

from tests.support.public_side import UID
from tests.unit.roles.conftest import INVENTORIES, Rendered

Render = Callable[..., Rendered]
TEMPLATES = ("desired.yml.j2", "reset.yml.j2")


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("inventory", INVENTORIES)
def test_the_engine_accepts_every_document(render: Render, inventory: str, template: str) -> None:
    rendered = render(inventory)
    for host in rendered.site.hosts.values():
        document = rendered.document(host.name, template)
        order = all_layers().order
        order = order if template == "desired.yml.j2" else order[::-1]
        assert document["layers"] == [layer for layer in order if layer in host.layers]
        assert {resource["id"].split("/")[0] for resource in document["resources"]} <= set(host.layers)
        read = read_document(document)
        assert len(read.resources) == len(document["resources"])


@pytest.mark.parametrize("inventory", INVENTORIES)
def test_rendering_twice_gives_the_same(render: Render, inventory: str) -> None:
    rendered = render(inventory)
    again = Rendered(rendered.site)
    for host in rendered.site.hosts:
        assert rendered.document(host) == again.document(host)


@pytest.mark.parametrize(
    ("host", "layers"),
    [
        (
            "az-1",
            [
                "base",
                "egress",
                "containerd",
                "flannel",
                "dns",
                "etcd_disk",
                "etcd",
                "etcd_events",
                "etcd_backup",
                "node",
                "control_plane",
                "access",
                "gpu_repair",
            ],
        ),
        ("az-3", ["base", "etcd_disk", "etcd", "etcd_events", "etcd_backup", "haproxy"]),
        ("rack-1", ["base", "egress", "containerd", "flannel", "gvisor", "dns", "node"]),
    ],
)
def test_groups_decide_the_layers(render: Render, host: str, layers: list[str]) -> None:
    assert render().document(host)["layers"] == layers


def phases() -> list[tuple[str, list[str]]]:
    """Return what playbooks ask converge for, host kind by host kind."""
    return [
        ("az-1", ["base", "egress", "containerd", "flannel", "gvisor", "haproxy", "node"]),
        ("az-1", ["etcd"]),
        ("az-1", ["etcd_backup"]),
        ("az-1", ["node", "control_plane"]),
        ("az-2", ["node", "control_plane"]),
        ("az-1", ["access"]),
        ("rack-1", ["base", "egress", "containerd", "flannel", "gvisor", "haproxy", "node"]),
        ("rack-1", ["node"]),
    ]


@pytest.mark.parametrize(("host", "layers"), phases())
def test_a_phase_alone_is_a_whole_document(render: Render, host: str, layers: list[str]) -> None:
    rendered = render()
    document = rendered.renderer.document(rendered.site.hosts[host], layers)
    # A layer that is switched off says that nothing of it stays, and no more.
    assert read_document(document).resources or document["prunes"] == layers


def test_a_layer_used_alone_is_a_whole_document(render: Render) -> None:
    rendered = render()
    for host in rendered.site.hosts.values():
        for layer in host.layers:
            document = rendered.renderer.document(host, [layer])
            assert document["layers"] == [layer]
            assert read_document(document).resources or document["prunes"] == [layer]


def order_of(rendered: Rendered, host: str) -> list[str]:
    """Return the ids of a host's resources in the order of application."""
    return [resource.id for resource in read_document(rendered.document(host)).resources]


@pytest.mark.parametrize(
    ("host", "earlier", "later"),
    [
        ("rack-1", "base/hosts", "node/join"),
        ("rack-1", "containerd/mirror-ghcr.io", "containerd/service"),
        ("rack-1", "gvisor/drop-in", "containerd/service"),
        ("rack-1", "gvisor/shim", "gvisor/drop-in"),
        ("rack-1", "containerd/service", "node/image-flannel"),
        ("rack-1", "node/image-kube-proxy", "node/join"),
        ("rack-1", "node/join", "node/running"),
        ("az-1", "etcd/server-key", "etcd/server"),
        ("az-1", "etcd/server", "etcd/service"),
        ("az-1", "etcd/data", "etcd/service"),
        ("az-1", "etcd/service", "control_plane/member"),
        ("az-1", "control_plane/etcd-client", "control_plane/member"),
        ("az-1", "control_plane/kubernetes-ca-key", "control_plane/member"),
        ("az-1", "control_plane/image-kube-apiserver", "control_plane/member"),
        ("az-2", "control_plane/service-account-key", "control_plane/member"),
        ("az-3", "haproxy/package", "haproxy/config"),
    ],
)
def test_order(render: Render, host: str, earlier: str, later: str) -> None:
    order = order_of(render(), host)
    assert order.index(earlier) < order.index(later)


def test_every_control_plane_may_start_the_cluster_or_join_and_workers_join(render: Render) -> None:
    actions = {
        host: [
            (resource["action"], resource["role"])
            for resource in render().document(host)["resources"]
            if resource["kind"] == "kubeadm"
        ]
        for host in render().site.hosts
    }
    assert actions == {
        "az-1": [("init_or_join", "control_plane")],
        "az-2": [("init_or_join", "control_plane")],
        "az-3": [],
        "rack-1": [("join", "worker")],
        "rack-2": [("join", "worker")],
    }


def test_containerd_restarts_once_for_gvisor_and_only_where_it_is(render: Render) -> None:
    with_gvisor = render().resources("rack-1")
    units = [name for name, resource in with_gvisor.items() if resource.get("name") == "containerd.service"]
    assert units == ["containerd/service"]
    assert "gvisor/drop-in" in with_gvisor["containerd/service"]["restart_on"]
    assert "gvisor/drop-in" not in render().resources("az-1")["containerd/service"]["restart_on"]


def test_a_kubelet_is_started_after_the_join_only(render: Render) -> None:
    for host, joined in [
        ("rack-1", "node/join"),
        ("az-1", "control_plane/member"),
        ("az-2", "control_plane/member"),
    ]:
        units = [r for r in render().document(host)["resources"] if r.get("name") == "kubelet.service"]
        assert [(unit.get("state", "started"), joined in unit["requires"]) for unit in units] == [
            ("unchanged", False),
            ("started", True),
        ]


@pytest.mark.parametrize("inventory", INVENTORIES)
def test_secrets_are_named_never_written(render: Render, inventory: str) -> None:
    for host in render(inventory).site.group("control_plane"):
        secrets = {
            resource["path"]: (resource["secret"], resource["mode"])
            for resource in render(inventory).document(host.name)["resources"]
            if "secret" in resource and not resource["id"].startswith("etcd_backup/")
        }
        assert secrets == {
            "/etc/kubernetes/pki/ca.key": ("kubernetes-ca-key", "0600"),
            "/etc/kubernetes/pki/front-proxy-ca.key": ("front-proxy-ca-key", "0600"),
            "/etc/kubernetes/pki/sa.key": ("service-account-key", "0600"),
        }
    for host in render(inventory).site.group("nodes"):
        assert not any(
            "secret" in resource for resource in render(inventory).document(host.name)["resources"]
        )


@pytest.mark.parametrize("inventory", INVENTORIES)
def test_only_network_settings_of_the_kernel_are_written(render: Render, inventory: str) -> None:
    for host in render(inventory).site.hosts:
        names = [r["name"] for r in render(inventory).document(host)["resources"] if r["kind"] == "sysctl"]
        assert "net.ipv4.ip_forward" in names
        assert all(name.startswith("net.") for name in names)


def absent_paths(rendered: Rendered, host: str) -> dict[str, bool]:
    """Return what a reset takes away, and whether with all that is below it."""
    return {
        resource["path"]: bool(resource.get("recursive"))
        for resource in rendered.after(host, rendered, "reset.yml.j2").values()
        if resource["kind"] == "absent"
    }


KEPT = (
    "/etc/containerd/conf.d",
    "/etc/containerd/certs.d",
    "/var/lib/etcd",
    "/opt/cni/bin",
    "/usr/local/bin",
    "/usr/local/libexec",
)
"""Folders that others may use too; the engine takes them away itself when they are empty and its own."""


@pytest.mark.parametrize("inventory", INVENTORIES)
def test_reset_takes_away_every_file_that_is_declared(render: Render, inventory: str) -> None:
    rendered = render(inventory)
    for host in rendered.site.hosts:
        gone = absent_paths(rendered, host)
        for resource in rendered.document(host)["resources"]:
            paths = [resource.get("path"), resource.get("key_path")]
            if resource["kind"] == "absent":
                continue
            if resource.get("unpack") == "tar":
                paths = [f"{resource['path']}/{member}" for member in resource["members"]]
            for path in filter(None, paths):
                if path in KEPT:
                    continue
                folders = [
                    parent
                    for parent, all_of_it in gone.items()
                    if all_of_it and path.startswith(parent + "/")
                ]
                assert path in gone or folders, f"{host}: reset leaves {path} of {resource['id']}"


def test_reset_stops_what_it_takes_away_first(render: Render) -> None:
    order = list(render().after("az-1", render(), "reset.yml.j2"))
    for earlier, later in [
        ("node/reset", "node/unit-removed-1"),
        ("node/unit-removed-1", "containerd/unit-removed-1"),
        ("node/unit-removed-1", "etcd/unit-removed-1"),
        ("etcd/unit-removed-1", "etcd/data"),
        ("etcd/data", "etcd/data-root-removed"),
        ("containerd/unit-removed-1", "containerd/data"),
    ]:
        assert order.index(earlier) < order.index(later)


def test_reset_leaves_the_data_of_other_clusters(render: Render) -> None:
    found = list(render().after("az-1", render(), "reset.yml.j2").values())
    removed = {r["path"]: r.get("recursive", False) for r in found if r["kind"] == "absent"}
    assert {path: deep for path, deep in removed.items() if path.startswith("/var/lib/etcd")} == {
        f"/var/lib/etcd/{UID}": True,
        "/var/lib/etcd/snapshots": True,
        "/var/lib/etcd": False,
        "/var/lib/etcd-events": True,
        "/var/lib/etcd/events": True,
    }
    assert [r["keep_used"] for r in found if r.get("path") == "/var/lib/etcd"] == [True]


@pytest.mark.parametrize(
    ("host", "demand", "value"),
    [
        ("az-1", "min_cpus", 2),
        ("az-1", "min_memory_bytes", 2048 * 2**20),
        ("az-3", "min_cpus", 1),
        ("rack-1", "min_memory_bytes", 1024 * 2**20),
        ("rack-1", "min_kernel", "5.15"),
        ("rack-1", "cgroup_versions", [1, 2]),
        ("rack-1", "max_clock_skew_s", 5),
    ],
)
def test_fitness(render: Render, host: str, demand: str, value: t.Any) -> None:
    assert render().document(host)["fitness"][demand] == value


@pytest.mark.parametrize(
    ("host", "ports"),
    [
        ("az-1", [2379, 2380, 2381, 2384, 6443, 10250, 10257, 10259]),
        ("az-3", [2379, 2380, 2381, 2384, 8443]),
        ("rack-1", [10250]),
    ],
)
def test_ports_that_must_be_free(render: Render, host: str, ports: list[int]) -> None:
    found = render().document(host)["fitness"]["ports_free"]
    assert sorted(entry["port"] for entry in found) == ports
    assert all(entry["allowed_process"] for entry in found)


def test_foreign_installations_are_found(render: Render) -> None:
    paths = [entry["path"] for entry in render().document("rack-1")["fitness"]["foreign"]]
    assert "/usr/bin/kubelet" in paths
    assert "/usr/bin/dockerd" in paths
    assert "/etc/containerd/config.toml" in paths
