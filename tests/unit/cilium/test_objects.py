# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a site chooses comes into Cilium's manifests; a small stand-in has the places that it goes to."""

from __future__ import annotations

import copy
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cilium.objects import (
    ANNOTATION,
    Settings,
    cilium_objects,
    configuration,
)

Object = dict[str, t.Any]
API = [{"name": "KUBERNETES_SERVICE_HOST", "value": "api.invalid"}, {"name": "OTHER", "value": "kept"}]


def workload(kind: str, name: str, **spec: t.Any) -> Object:
    """Return a workload as the chart has it."""
    pod = {
        "initContainers": [{"name": "config", "env": copy.deepcopy(API)}],
        "containers": [
            {
                "name": name,
                "env": [*copy.deepcopy(API), {"name": "KUBERNETES_SERVICE_PORT", "value": "1"}],
                "securityContext": {"capabilities": {"add": ["NET_ADMIN", "SYS_RESOURCE"]}},
            }
        ],
        "volumes": [{"name": "kernel", "hostPath": {"path": "/proc/sys/kernel"}}, {"name": "empty"}],
    }
    return {
        "kind": kind,
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {"template": {"metadata": {"labels": {}}, "spec": pod}, **spec},
    }


MANIFESTS: list[Object] = [
    workload("Deployment", "cilium-operator", replicas=1),
    workload("DaemonSet", "cilium", updateStrategy={"rollingUpdate": {"maxUnavailable": 2}}),
    {"kind": "ConfigMap", "metadata": {"name": "cilium-config"}, "data": {"bpf-lb-sock-hostns-only": "true"}},
    {"kind": "Role", "metadata": {"name": "cilium-operator", "namespace": "one"}},
    {"kind": "Role", "metadata": {"name": "cilium-operator", "namespace": "two"}},
    {"kind": "ServiceAccount", "metadata": {"name": "cilium"}},
]


def settings(**changes: t.Any) -> Settings:
    """Return a site's choices."""
    chosen: dict[str, t.Any] = {
        "api": ["10.20.0.10", 6443],
        "pod_cidr": "10.244.0.0/16",
        "node_cidr_mask": 25,
        "routing": "tunnel",
        "tunnel_port": 8473,
        "mtu": 1400,
        "operators": 2,
        "hubble": False,
        "max_unavailable": "10%",
        "host_table": False,
        "beside": False,
        "capabilities_dropped": [],
        "kernel_sysctl_folder": "/proc/sys/kernel",
        **changes,
    }
    return t.cast("Settings", chosen)


def rendered(**changes: t.Any) -> dict[str, Object]:
    """Return the objects by kind; the manifests themselves must stay as they are."""
    before = copy.deepcopy(MANIFESTS)
    objects = cilium_objects(MANIFESTS, settings(**changes))
    assert before == MANIFESTS
    return {item["kind"]: item for item in objects}


def test_nothing_is_lost_and_workloads_come_last() -> None:
    objects = cilium_objects(MANIFESTS, settings())
    assert [item["kind"] for item in objects] == [
        "ServiceAccount", "ConfigMap", "Role", "Role", "Deployment", "DaemonSet",
    ]  # fmt: skip
    assert {item["metadata"].get("namespace") for item in objects if item["kind"] == "Role"} == {"one", "two"}


@pytest.mark.parametrize(
    ("changes", "entries"),
    [
        (
            {},
            {
                "cluster-pool-ipv4-cidr": "10.244.0.0/16",
                "cluster-pool-ipv4-mask-size": "25",
                "routing-mode": "tunnel",
                "tunnel-port": "8473",
                "mtu": "1400",
                "enable-hubble": "false",
                "enable-host-legacy-routing": "false",
            },
        ),
        ({"hubble": True}, {"enable-hubble": "true"}),
        ({"host_table": True}, {"enable-host-legacy-routing": "true"}),
        ({"routing": "native"}, {"routing-mode": "native", "ipv4-native-routing-cidr": "10.244.0.0/16"}),
    ],
)
def test_what_a_site_chooses_is_configured(changes: Object, entries: dict[str, str]) -> None:
    data = rendered(**changes)["ConfigMap"]["data"]
    assert data["bpf-lb-sock-hostns-only"] == "true"
    assert entries.items() <= data.items()
    assert ("tunnel-port" in data) == (data["routing-mode"] == "tunnel")
    assert all(isinstance(value, str) for value in configuration(settings(**changes)).values())


def test_pods_find_the_api_without_a_service() -> None:
    for kind in ("DaemonSet", "Deployment"):
        pod = rendered()[kind]["spec"]["template"]["spec"]
        (init,) = pod["initContainers"]
        assert init["env"] == [{"name": "KUBERNETES_SERVICE_HOST", "value": "10.20.0.10"}, API[1]]
        assert pod["containers"][0]["env"][-1]["value"] == "6443"


def test_another_configuration_is_another_pod() -> None:
    def stamp(kind: str, **changes: t.Any) -> str:
        return str(rendered(**changes)[kind]["spec"]["template"]["metadata"]["annotations"][ANNOTATION])

    for kind in ("DaemonSet", "Deployment"):
        assert stamp(kind) == stamp(kind, max_unavailable="1%", operators=1)
        assert stamp(kind) != stamp(kind, mtu=1399)


def test_annotations_of_the_chart_are_kept_and_need_not_be_there() -> None:
    manifests = copy.deepcopy(MANIFESTS)
    for item, noted in zip(manifests, (None, {"kept": "yes"}), strict=False):
        item["spec"]["template"]["metadata"]["annotations"] = noted
    objects = {item["kind"]: item for item in cilium_objects(manifests, settings())}
    found = [
        objects[kind]["spec"]["template"]["metadata"]["annotations"] for kind in ("Deployment", "DaemonSet")
    ]
    assert found[0] == {ANNOTATION: found[1][ANNOTATION]}
    assert found[1]["kept"] == "yes"


def test_a_lab_takes_from_the_agent_only() -> None:
    objects = rendered(capabilities_dropped=["SYS_RESOURCE"], kernel_sysctl_folder="/lab", max_unavailable=1)
    agent = objects["DaemonSet"]["spec"]["template"]["spec"]
    assert agent["containers"][0]["securityContext"]["capabilities"]["add"] == ["NET_ADMIN"]
    assert agent["volumes"][0]["hostPath"]["path"] == "/lab"
    assert objects["DaemonSet"]["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == 1
    operator = objects["Deployment"]["spec"]
    assert operator["template"]["spec"]["volumes"][0]["hostPath"]["path"] == "/proc/sys/kernel"
    assert operator["replicas"] == 2


def without(what: str) -> list[Object]:
    """Return the manifests without a place that a choice goes to."""
    items = [
        item for item in copy.deepcopy(MANIFESTS) if f"{item['kind']} {item['metadata']['name']}" != what
    ]
    for item in items:
        pod = item.get("spec", {}).get("template", {}).get("spec")
        if pod and what == "volume":
            pod["volumes"] = []
        if pod and what == "api":
            for one in (*pod["containers"], *pod["initContainers"]):
                one["env"] = []
    return items


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("ConfigMap cilium-config", "no ConfigMap cilium-config"),
        ("DaemonSet cilium", "no DaemonSet cilium"),
        ("Deployment cilium-operator", "no Deployment cilium-operator"),
        ("volume", "mount no /proc/sys/kernel"),
        ("api", "name no API server"),
    ],
)
def test_a_place_that_moved_is_an_error(what: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        cilium_objects(without(what), settings())
