# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The layer dns: off by default, on per host, CoreDNS of the cluster by the size of the site."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Callable

import pytest

from tests.unit.roles.conftest import INVENTORIES, Rendered

Render = Callable[..., Rendered]
ON: dict[str, t.Any] = {"dns_node_cache": True}
FILES = ("dns/configuration", "dns/table")
_SECONDS = {"s": 1, "m": 60, "h": 3600}


@pytest.mark.parametrize("inventory", INVENTORIES)
def test_off_by_default(render: Render, inventory: str) -> None:
    rendered = render(inventory)
    host = rendered.site.group("nodes")[0].name
    assert not [name for name in rendered.resources(host) if name.startswith("dns/")]
    taken = rendered.after(host, render(inventory, ON))
    ours = [item for name, item in taken.items() if name.startswith("dns/")]
    assert {item["kind"] for item in ours} == {"systemd_unit", "absent"}
    assert (ours[0]["name"], ours[0]["state"]) == ("ironspan-dns.service", "stopped")
    (deployment,) = rendered.renderer.objects("dns")
    assert set(deployment["spec"]) == {"template"}, "number and Corefile stay kubeadm's"


def test_kubelet_asks_the_cache_first(render: Render) -> None:
    assert "- 10.96.0.10\n" in render().content("rack-1", "node/settings")
    assert "169.254.20.10" not in render().content("rack-1", "node/settings")
    settings = render(variables=ON).content("rack-1", "node/settings")
    assert re.search(r"clusterDNS:\n- 169\.254\.20\.10\n- 10\.96\.0\.10\n", settings)


@pytest.mark.parametrize(
    ("variables", "upstreams"),
    [
        ({}, "/etc/resolv.conf"),
        ({"node_kubelet_resolv_conf": "/run/resolv.conf"}, "/run/resolv.conf"),
        ({"dns_resolvers": ["10.0.0.53", "10.0.1.53"]}, "10.0.0.53 10.0.1.53"),
        (
            {"dns_resolvers": ["10.0.0.53"], "egress_enabled": True, "egress_resolvers": ["10.0.2.53"]},
            "10.0.2.53",
        ),
    ],
)
def test_who_is_asked_for_names_outside(render: Render, variables: dict[str, t.Any], upstreams: str) -> None:
    corefile = render(variables={**ON, **variables}).content("rack-1", "dns/configuration")
    assert re.findall(r"forward \. (.*?)(?: \{)?\n", corefile) == ["10.96.0.10", upstreams]


def test_with_egress_and_no_resolver_only_names_of_the_cluster(render: Render) -> None:
    corefile = render(variables={**ON, "egress_enabled": True}).content("rack-1", "dns/configuration")
    assert re.findall(r"forward \. (\S+)", corefile) == ["10.96.0.10"]


def test_egress_lets_pods_ask_the_cache_and_nobody_else(render: Render) -> None:
    rule = "ip daddr 169.254.20.10 meta l4proto { tcp, udp } th dport 53 accept"
    assert rule not in render(variables={"egress_enabled": True}).content("rack-1", "egress/table")
    table = render(variables={**ON, "egress_enabled": True}).content("rack-1", "egress/table")
    assert table.index(rule) < table.index("ip daddr @metadata goto drop_metadata")


def test_answers_outlive_the_link_by_an_hour_at_least(render: Render) -> None:
    node = render(variables=ON).content("rack-1", "dns/configuration")
    cluster = render(variables={"dns_managed": True}).renderer.objects("dns")[0]["data"]["Corefile"]
    for corefile, blocks in ((node, 2), (cluster, 1)):
        times = re.findall(r"serve_stale (\d+)([smh]) verify", corefile)
        assert len(times) == blocks
        assert all(int(number) * _SECONDS[unit] >= 3600 for number, unit in times)
        assert "autopath" not in corefile


@pytest.mark.parametrize(
    ("variables", "replicas"),
    [({}, 2), ({"dns_cores_count": 1024}, 4), ({"dns_cores_count": 4096, "dns_node_cache": True}, 2)],
)
def test_servers_of_the_cluster(render: Render, variables: dict[str, t.Any], replicas: int) -> None:
    objects = render(variables={"dns_managed": True, **variables}).renderer.objects("dns")
    found = {item["kind"]: item for item in objects}
    assert set(found) == {"ConfigMap", "Deployment", "PodDisruptionBudget", "Service"}
    assert found["Deployment"]["spec"]["replicas"] == replicas
    # Its image has another owner, who changes it in an upgrade.
    assert "containers" not in found["Deployment"]["spec"]["template"]["spec"]
    spread = found["Deployment"]["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert all(rule["matchLabelKeys"] == ["pod-template-hash"] for rule in spread)
    assert [rule["topologyKey"] for rule in spread] == ["kubernetes.io/hostname"]


ZONE = {"topology.kubernetes.io/zone": "azure"}


@pytest.mark.parametrize(
    ("labels", "keys"),
    [
        ({}, ["kubernetes.io/hostname"]),
        # The scheduler would give the others no points for their hosts.
        ({"az-1": ZONE}, ["kubernetes.io/hostname"]),
        ({"": ZONE}, ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]),
    ],
)
def test_zones_count_where_every_node_has_one(
    render: Render, labels: dict[str, dict[str, str]], keys: list[str]
) -> None:
    rendered = render()
    for name, host in rendered.site.hosts.items():
        t.cast("dict[str, str]", host.labels).update(labels.get(name) or labels.get("", {}))
    objects = rendered.renderer.objects("dns")
    (deployment,) = [item for item in objects if item["kind"] == "Deployment"]
    spread = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert [rule["topologyKey"] for rule in spread] == keys


@pytest.mark.parametrize("managed", [False, True])
def test_servers_are_spread_once_there_is_more_than_one_host(render: Render, managed: bool) -> None:
    """The template changes with the second host, so that pods which kubeadm started on the first move."""
    rendered = render(variables={"dns_managed": managed})
    found, deployments = [], []
    hosts = {host.name for group in ("control_plane", "nodes") for host in rendered.site.group(group)}
    for stays in (hosts, {"az-1"}):
        rendered.site.leaving = frozenset(hosts - stays)
        objects = rendered.renderer.objects("dns")
        deployments.append(next(item for item in objects if item["kind"] == "Deployment"))
    for deployment in deployments:
        annotations = deployment["spec"]["template"]["metadata"]["annotations"]
        found.append(annotations["ironspan.io/spread-over"])
    assert found == ["several hosts", "one host"]
    spread = deployments[0]["spec"]["template"]["spec"]
    assert spread["topologySpreadConstraints"][0]["topologyKey"] == "kubernetes.io/hostname"
    (rule,) = spread["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert rule["podAffinityTerm"]["matchLabelKeys"] == ["pod-template-hash"]


def test_a_reset_leaves_nothing(render: Render) -> None:
    rendered = render(variables=ON)
    paths = {item.get("path") for item in rendered.after("rack-1", rendered, "reset.yml.j2").values()}
    # A folder goes after the files in it.
    inside = {item["path"] for name, item in rendered.resources("rack-1").items() if name in FILES}
    assert len(inside) == 2 and inside <= paths
    assert {
        "/etc/systemd/system/ironspan-dns.service", "/etc/ironspan-dns", "/usr/local/bin/coredns",
    } <= paths  # fmt: skip
