# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What hosts and the cluster get with two address families, and that without them nothing is different."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Callable

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import node_addresses
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import day_zero, dual_stack

from tests.unit.roles.conftest import Rendered

Render = Callable[..., Rendered]
NETWORKS: dict[str, t.Any] = {
    "site_pod_cidr_ipv6": "fd00:10:244::/48",
    "site_service_cidr_ipv6": "fd00:10:96::/108",
}
NAMES = ("az-1", "az-2", "az-3", "rack-1", "rack-2")
HOSTS = yaml.safe_dump(
    {"all": {"hosts": {name: {"site_address_ipv6": f"2001:db8::{n}"} for n, name in enumerate(NAMES, 1)}}}
)


def documents(rendered: Rendered, host: str) -> dict[str, dict[str, t.Any]]:
    """Return kubeadm's documents by kind."""
    for item in rendered.resources(host).values():
        text = item.get("config") or item.get("content") or ""
        if "kind: ClusterConfiguration" in str(text):
            return {each["kind"]: each for each in yaml.safe_load_all(text)}
    raise AssertionError(host)


def flannel(rendered: Rendered) -> dict[str, t.Any]:
    """Return flannel's configuration."""
    objects = rendered.renderer.objects("flannel")
    found = next(each for each in objects if each["kind"] == "ConfigMap")
    return dict(json.loads(found["data"]["net-conf.json"]))


def test_two_families_everywhere(render: Render) -> None:
    rendered = render(variables=NETWORKS, more=HOSTS)
    made = documents(rendered, "az-1")
    assert made["ClusterConfiguration"]["networking"]["podSubnet"] == "10.244.0.0/16,fd00:10:244::/48"
    assert made["ClusterConfiguration"]["networking"]["serviceSubnet"] == "10.96.0.0/16,fd00:10:96::/108"
    assert made["KubeProxyConfiguration"]["clusterCIDR"] == "10.244.0.0/16,fd00:10:244::/48"
    flags = {
        each["name"]: each["value"] for each in made["ClusterConfiguration"]["controllerManager"]["extraArgs"]
    }
    assert (flags["node-cidr-mask-size-ipv4"], flags["node-cidr-mask-size-ipv6"]) == ("24", "64")
    assert "node-cidr-mask-size" not in flags
    registration = made["InitConfiguration"]["nodeRegistration"]["kubeletExtraArgs"]
    assert registration == [{"name": "node-ip", "value": "10.98.0.11,2001:db8::1"}]
    configuration = flannel(rendered)
    assert (configuration["EnableIPv6"], configuration["IPv6Network"]) == (True, "fd00:10:244::/48")
    # flannel takes 50 bytes off, the tunnel over IPv6 needs 70.
    assert configuration["Backend"]["MTU"] == rendered.site.wan_mtu - (dual_stack.TUNNEL_BYTES - 50)
    own = rendered.resources("rack-1")
    assert own["flannel/sysctl-net.ipv6.conf.all.forwarding"]["value"] == "1"
    assert node_addresses(rendered.site)["rack-1"] == ["10.98.1.11", "2001:db8::4"]
    # The kubelet asks for a certificate with both, so this is the one that it is to have.
    assert own["node/kubelet-serving"]["csr"]["ips"] == ["10.98.1.11", "2001:db8::4"]
    assert dual_stack.fixed(rendered.site) == {**NETWORKS, "site_node_cidr_mask_ipv6": 64}


def test_nothing_is_different_without(render: Render) -> None:
    rendered = render()
    made = documents(rendered, "az-1")
    assert made["ClusterConfiguration"]["networking"]["podSubnet"] == "10.244.0.0/16"
    assert made["KubeProxyConfiguration"]["clusterCIDR"] == "10.244.0.0/16"
    flags = {each["name"] for each in made["ClusterConfiguration"]["controllerManager"]["extraArgs"]}
    assert "node-cidr-mask-size" in flags
    assert "node-cidr-mask-size-ipv6" not in flags
    assert "EnableIPv6" not in flannel(rendered)
    assert not [name for name in rendered.resources("rack-1") if "ipv6" in name]
    assert node_addresses(rendered.site)["rack-1"] == ["10.98.1.11"]
    assert rendered.resources("rack-1")["node/kubelet-serving"]["csr"]["ips"] == ["10.98.1.11"]
    assert dual_stack.fixed(rendered.site) == {}


def test_a_cluster_that_was_made_without_ipv6_does_not_get_it(tmp_path: t.Any) -> None:
    store = tmp_path / "pki"
    store.mkdir()
    (store / "store.json").write_text('{"site_uid": "u"}')
    day_zero.file_of(str(store)).write_text('{"site_uid": "u", "site_pod_cidr": "10.244.0.0/16"}')
    known = day_zero.made_with(str(store))
    assert (known["site_pod_cidr_ipv6"], known["site_service_cidr_ipv6"]) == ("", "")
