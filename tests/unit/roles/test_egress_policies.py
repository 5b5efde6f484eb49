# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Network policies of the site's namespaces, and the forward proxy's part of the table and of its hosts."""

from __future__ import annotations

import subprocess
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.kernel_module import kept_path
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import egress_names
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.values import Rejected
from hypothesis import given
from hypothesis import strategies as st

from tests.support.egress_table import table

from .test_egress import ON, SOON, Render

PROXY = "proxy-1: {ansible_host: 10.98.0.40, site_address: 10.98.0.40}"
MORE = f"egress_proxy:\n  hosts:\n    {PROXY}\nazure:\n  hosts:\n    proxy-1: {{}}\n"
IMAGE = "registry.k8s.io/networking/kube-network-policies@sha256:" + "7" * 64
ENTRY: dict[str, t.Any] = {"owner": "a", "reason": "b", "expires": SOON, "ports": [443]}
INSIDE = {
    **ON,
    "egress_allow": [
        {**ENTRY, "destination": "203.0.113.0/24", "ports": ["8000-8100", 443]},
        {**ENTRY, "destination": "198.51.100.7", "protocol": "udp", "namespaces": ["b"]},
    ],
    "egress_namespaces": [{"name": "a", "within": True, "api": True}, {"name": "b"}],
}


def policies(render: Render, variables: dict[str, t.Any], more: str = "") -> dict[tuple[str, str], t.Any]:
    """Return the specifications of the network policies by namespace and name."""
    found = render("lab", variables, more).renderer.objects("egress")
    return {
        (item["metadata"]["namespace"], item["metadata"]["name"]): item["spec"]
        for item in found
        if item["kind"] == "NetworkPolicy"
    }


def test_every_namespace_is_closed_and_has_names(render: Render) -> None:
    made = policies(render, INSIDE)
    for name in ("a", "b"):
        closed = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
        assert made[name, "ironspan-default-deny"] == closed
        dns = made[name, "ironspan-allowed"]["egress"][0]
        assert dns["ports"] == [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]
        assert dns["to"][0]["podSelector"]["matchLabels"] == {"k8s-app": "kube-dns"}
        assert dns["to"][1:] == [{"ipBlock": {"cidr": "169.254.20.10/32"}}]
    kinds = [item["kind"] for item in render("lab", INSIDE).renderer.objects("egress")]
    assert kinds == ["Namespace", "NetworkPolicy", "NetworkPolicy"] * 2


def test_entries_open_what_they_say_where_they_say(render: Render) -> None:
    made = policies(render, INSIDE)
    ports = [{"protocol": "TCP", "port": 443}, {"protocol": "TCP", "port": 8000, "endPort": 8100}]
    network = {"to": [{"ipBlock": {"cidr": "203.0.113.0/24"}}], "ports": ports}
    one = {"to": [{"ipBlock": {"cidr": "198.51.100.7/32"}}], "ports": [{"protocol": "UDP", "port": 443}]}
    a, b = (made[name, "ironspan-allowed"] for name in ("a", "b"))
    assert b["egress"][1:] == [network, one]
    assert b["ingress"] == []
    assert a["ingress"] == [{"from": [{"podSelector": {}}]}]
    assert a["egress"][1] == {"to": [{"podSelector": {}}]}
    assert a["egress"][2]["ports"] == [{"protocol": "TCP", "port": 6443}]
    assert a["egress"][3:] == [network]


@pytest.mark.parametrize("variables", [{}, {"egress_enabled": False}, ON])
def test_without_namespaces_there_are_no_objects(render: Render, variables: dict[str, t.Any]) -> None:
    assert render("lab", variables).renderer.objects("egress") == []


def test_the_engine_is_there_when_chosen_and_fails_closed(render: Render) -> None:
    found = render("lab", {**ON, "egress_policy_image": IMAGE}).renderer.objects("egress")
    (container,) = found[-1]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == IMAGE
    assert "--fail-open=false" in container["args"]
    module = render("lab", {**ON, "egress_policy_image": IMAGE}).resources("rack-1")["egress/nft-queue"]
    assert (module["kind"], module["name"]) == ("kernel_module", "nft_queue")
    taken = render("lab", ON).after("rack-1", render("lab", {**ON, "egress_policy_image": IMAGE}))
    gone = taken["egress/nft-queue-removed"]
    assert (gone["kind"], gone["path"]) == ("absent", kept_path("egress/nft-queue"))


def proxied(render: Render, *destinations: str) -> t.Any:
    entries = [{**ENTRY, "destination": name, "through": "proxy"} for name in destinations]
    return render("lab", {**INSIDE, "egress_allow": entries}, MORE)


def test_the_proxy_has_the_names_and_pods_reach_it(render: Render) -> None:
    rendered = proxied(render, "PyPI.example.com", "*.mirrors.example.com")
    found = rendered.resources("proxy-1")
    lines = found["egress_proxy/list"]["content"].splitlines()
    assert {line.split(" ", 1)[0] for line in lines} == {str(rendered.site.egress.proxied[0].until)}
    assert "acl name_2 dstdomain -n .mirrors.example.com" in found["egress_proxy/list"]["content"]
    assert "http_port 10.98.0.40:3128 ssl-bump" in found["egress_proxy/config"]["content"]
    for host in ("az-1", "rack-1"):
        nft = rendered.content(host, "egress/table")
        assert nft.count("ip daddr { 10.98.0.40 } tcp dport 3128 accept") == 2
        assert "allow_1" not in nft
    allowed = rendered.renderer.objects("egress")[2]["spec"]["egress"]
    assert allowed[-1] == {
        "to": [{"ipBlock": {"cidr": "10.98.0.40/32"}}],
        "ports": [{"protocol": "TCP", "port": 3128}],
    }


def test_reset_takes_the_proxy_away(render: Render) -> None:
    rendered = proxied(render, "pypi.example.com")
    taken = rendered.after("proxy-1", rendered, "reset.yml.j2")
    gone = [each["path"] for each in taken.values() if "path" in each]
    files = [
        each for each in rendered.resources("proxy-1").values() if each["id"].startswith("egress_proxy/")
    ]
    for each in files:
        if each["kind"] == "file":
            assert any(each["path"].startswith(path) for path in gone), each["path"]


def test_lines_end_by_themselves(render: Render) -> None:
    script = proxied(render, "pypi.example.com").content("proxy-1", "egress_proxy/script")
    text = "1000000000 acl old dstdomain a\n99999999999 acl new dstdomain  b\n"
    done = subprocess.run(["sh", "-c", script], input=text, capture_output=True, text=True, check=True)
    assert done.stdout == "acl new dstdomain  b\n"


def test_without_entries_for_it_pods_do_not_reach_the_proxy() -> None:
    assert "3128" not in table()
    assert table(proxies=["10.98.0.40"]).count("tcp dport 3128 accept") == 2


@given(st.text(max_size=40) | st.from_regex(r"(\*\.)?[a-zA-Z0-9.-]{1,40}", fullmatch=True))
def test_a_name_for_the_proxy_is_one_word_below_a_domain(text: str) -> None:
    try:
        name = egress_names.proxied_name(text)
    except Rejected:
        return
    assert name == text.lower()
    assert set(name.removeprefix("*.")) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.")
    assert "." in name.removeprefix("*.")
