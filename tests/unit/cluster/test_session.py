# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import generate_key_file, open_store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Host, Site, Taint
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.runtime import Runtimes, classes_of


def host(name: str, address: str, *groups: str) -> Host:
    taints = (Taint("gpu", "", "NoSchedule"), Taint("a", "b", "NoExecute")) if "gpu" in groups else ()
    side = "azure" if name.startswith("az") else "on_prem"
    variables = {"etcd_version": "3.6.14"} if "etcd" in groups else {}
    return Host(
        name, address, address, groups, "", {"l": name}, taints, side, "http://m", "1.36.4", (), variables
    )


HOSTS = [
    host("az-1", "10.0.0.1", "etcd", "control_plane"),
    host("az-2", "10.0.0.2", "etcd", "haproxy"),
    host("rack-1", "10.1.0.1", "nodes", "gvisor", "gpu"),
    host("rack-2", "10.1.0.2", "nodes"),
]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    open_store(tmp_path / "pki", generate_key_file(tmp_path / "key")).ensure_cas()
    return Site(
        "site",
        "api.example.internal:8443",
        "10.0.0.2",
        "10.244.0.0/16",
        "10.96.0.0/16",
        24,
        "cluster.local",
        "1.36.4",
        1400,
        str(tmp_path / "pki"),
        str(tmp_path / "key"),
        "",
        {item.name: item for item in HOSTS},
        runtime=Runtimes(classes_of([{"name": "gvisor"}])),
    )


def test_what_verify_expects(site: Site) -> None:
    found = session.expected(site)
    assert [(node.name, node.control_plane, node.gvisor, node.side) for node in found.nodes] == [
        ("az-1", True, False, "azure"),
        ("rack-1", False, True, "on_prem"),
        ("rack-2", False, False, "on_prem"),
    ]
    assert found.etcd == {"az-1": "10.0.0.1", "az-2": "10.0.0.2"}
    assert (found.kubernetes_version, found.etcd_version) == ("1.36.4", "3.6.14")


def test_nodes_are_control_planes_and_workers_only(site: Site) -> None:
    assert session.node_addresses(site) == {
        "az-1": ["10.0.0.1"],
        "rack-1": ["10.1.0.1"],
        "rack-2": ["10.1.0.2"],
    }


def test_declared_labels_and_taints(site: Site) -> None:
    declared = session.declared_nodes(site)
    assert declared["rack-1"].labels == {"l": "rack-1"}
    assert declared["rack-1"].taints == [
        {"key": "gpu", "effect": "NoSchedule"},
        {"key": "a", "value": "b", "effect": "NoExecute"},
    ]
    assert declared["rack-2"].taints == []
    assert "az-2" not in declared


def test_address_is_dialled_and_the_name_checked(site: Site) -> None:
    cluster = session.Session(site).kubeconfig()["clusters"][0]["cluster"]
    assert cluster["server"] == "https://10.0.0.2:8443"
    assert cluster["tls-server-name"] == "api.example.internal"
    site.api_endpoint = "10.0.0.2:8443"
    cluster = session.Session(site).kubeconfig()["clusters"][0]["cluster"]
    assert cluster["server"] == "https://10.0.0.2:8443"
    assert "tls-server-name" not in cluster
