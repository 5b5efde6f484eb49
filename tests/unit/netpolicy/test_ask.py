# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Questions about two endpoints and their answers, on a site and a cluster that are data."""

from __future__ import annotations

import ipaddress
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.ask import ask
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.endpoints import Address, Endpoint
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.lookup import Lookup
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.questions import (
    Name,
    Pod,
    QuestionError,
    Service,
    pod_of,
    target_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.verdict import as_text
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import policy_site
from tests.support.policy_site import ADDRESSES, NOW, HeldApi

ENFORCED = {"egress_enabled": True, "egress_policy_image": "example.test/policies@sha256:0"}
NAMES = {"pypi.mirrors.example.com": ["203.0.114.1"], "data.example.com": ["203.0.113.9", "203.0.113.200"]}


def resolve(name: str) -> list[Address]:
    """Return the addresses of a name outside."""
    if name not in NAMES:
        raise OSError(-2, "Name or service not known")
    return [ipaddress.ip_address(text) for text in NAMES[name]]


def asked(source: str, target: str, **variables: t.Any) -> dict[str, t.Any]:
    """Return the report."""
    lookup = Lookup(t.cast("Api", HeldApi()), {ADDRESSES[name]: name for name in ("az-1", "rack-1")})
    return ask(policy_site.site(**{**ENFORCED, **variables}), lookup, source, target, NOW, resolve)


@pytest.mark.parametrize(
    ("source", "target", "outcome", "rule"),
    [
        ("team-a/web", "team-b/db:5432", "allowed", "NetworkPolicy team-b/database, ingress[0]"),
        ("team-a/web", "team-b/db:sql", "allowed", "NetworkPolicy team-b/database, ingress[0]"),
        ("team-a/web", "10.244.0.20:5432", "allowed", "NetworkPolicy team-b/database, ingress[0]"),
        ("team-a/web", "team-b/db:22", "denied", "team-b/database, ingress[0]: all but the port"),
        ("team-b/shut", "team-b/db:5432", "denied", "team-b/database, NetworkPolicy team-b/deny: no rule"),
        (
            "team-a/web",
            "db.team-b.svc:15432",
            "partly allowed",
            "NetworkPolicy team-b/deny: no rule opens it",
        ),
        ("team-a/web", "10.96.0.77:15432", "partly allowed", "NetworkPolicy team-b/database, ingress[0]"),
        ("team-a/web", "203.0.113.9:443", "allowed", "203.0.113.0/24 tcp 443 (storage team: data sets)"),
        ("team-a/web", "203.0.113.200:443", "denied", "NetworkPolicy team-a/out: no rule opens it"),
        ("team-b/db", "203.0.113.9:80", "denied", "no entry of egress_allow opens it (outside)"),
        ("team-b/db", "169.254.169.254:80", "denied", "metadata of a cloud"),
        ("team-b/db", f"{ADDRESSES['rack-1']}:10250", "denied", "no entry of egress_allow"),
        ("team-b/db", f"{ADDRESSES['az-1']}:6443", "allowed", "the API servers"),
        ("team-b/db", "10.244.7.1:80", "denied", "no node has this part of the pod network (unrouted)"),
        ("team-b/db", "10.244.0.1:22", "denied", "its own host"),
        ("kube-system/agent", "team-b/db:22", "allowed", "its own node (az-1)"),
        ("team-a/web", "pypi.mirrors.example.com:443", "allowed", "*.mirrors.example.com 443 (build team"),
        (
            "team-b/db",
            "pypi.mirrors.example.com:80",
            "denied",
            "no entry of egress_allow with `through: proxy`",
        ),
        ("team-a/web", "data.example.com:443", "partly allowed", "NetworkPolicy team-a/out, egress[1]"),
        ("team-a/web", "nowhere.example.com:443", "denied", "no entry of egress_allow with `through: proxy`"),
    ],
)
def test_the_answer_names_the_rule(source: str, target: str, outcome: str, rule: str) -> None:
    report = asked(source, target)
    assert report["outcome"] == outcome, as_text(report)
    assert report["exit_code"] == (0 if outcome == "allowed" else 1)
    assert any(rule in step["rule"] for route in report["routes"] for step in route["steps"]), as_text(report)


def test_policies_that_nothing_enforces_protect_nobody() -> None:
    report = asked("team-b/shut", "team-b/db:5432", egress_policy_image="")
    assert report["outcome"] == "allowed"
    text = as_text(report)
    assert "network policies, ingress: would be denied: NetworkPolicy team-b/database" in text
    assert "nothing on this site enforces network policies" in text


V2 = "/apis/cilium.io/v2"


def with_cilium(
    source: str, target: str, moving: bool = False, **lists: list[dict[str, t.Any]]
) -> dict[str, t.Any]:
    """Return the report for a site whose pod network is Cilium, or is about to be; lists are of its kinds."""
    site = policy_site.site()
    site.cni = "flannel" if moving else "cilium"
    site.migration_cidr = "10.245.0.0/16" if moving else ""
    paths = {
        "team_a": f"{V2}/namespaces/team-a/ciliumnetworkpolicies",
        "team_b": f"{V2}/namespaces/team-b/ciliumnetworkpolicies",
        "wide": f"{V2}/ciliumclusterwidenetworkpolicies",
        "nodes": f"{V2}/ciliumnodes",
    }
    api = HeldApi({paths[name]: items for name, items in lists.items()})
    hosts = {ADDRESSES[name]: name for name in ("az-1", "rack-1")}
    return ask(site, Lookup(t.cast("Api", api), hosts, cilium=True), source, target, NOW, resolve)


def ciliums(name: str, namespace: str = "", valid: str = "", **spec: t.Any) -> dict[str, t.Any]:
    """Return a policy of Cilium's, with what its operator says of it."""
    conditions = [{"type": "Valid", "status": valid, "message": "no rule"}] if valid else []
    return {
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "spec": {"endpointSelector": {}, **spec},
        "status": {"conditions": conditions},
    }


def test_cilium_enforces_policies_before_it_knows_its_own_kinds() -> None:
    report = with_cilium("team-b/shut", "team-b/db:5432")
    assert report["outcome"] == "denied"
    assert report["notes"] == []


def test_all_kinds_of_policies_are_judged_where_cilium_is_the_network() -> None:
    opening = ciliums("open", "team-b", ingress=[{"fromEntities": ["cluster"]}])
    report = with_cilium("team-b/shut", "team-b/db:5432", team_b=[opening])
    assert report["outcome"] == "allowed", as_text(report)
    denial = ciliums("never", egressDeny=[{"toEntities": ["all"]}])
    report = with_cilium("team-b/shut", "team-b/db:5432", team_b=[opening], wide=[denial])
    assert (report["outcome"], report["exit_code"]) == ("denied", 1)
    said = "network policies, egress: denied: CiliumClusterwideNetworkPolicy never, egressDeny[0] denies it"
    assert said in as_text(report)


def test_before_the_last_stage_of_a_move_it_is_said_what_would_be_denied() -> None:
    denial = ciliums("never", egressDeny=[{"toEntities": ["all"]}])
    report = with_cilium("team-a/web", "team-b/db:5432", moving=True, wide=[denial])
    assert report["outcome"] == "allowed"
    text = as_text(report)
    assert "egress: would be denied: CiliumClusterwideNetworkPolicy never, egressDeny[0]" in text
    assert "nothing on this site enforces network policies" in text


def test_a_policy_that_cilium_has_rejected_counts_for_nothing() -> None:
    rejected = ciliums("never", "team-a", "False", egressDeny=[{"toEntities": ["all"]}])
    report = with_cilium("team-a/web", "team-b/db:5432", team_a=[rejected, ciliums("ok", "team-a", "True")])
    assert report["outcome"] == "allowed", as_text(report)
    assert report["notes"] == [
        "Cilium has rejected CiliumNetworkPolicy team-a/never, so it counts for nothing: no rule"
    ]


def test_what_cannot_be_known_is_no_answer() -> None:
    http = {"ports": [{"port": "5432"}], "rules": {"http": [{"method": "GET"}]}}
    asking = ciliums("http", "team-b", ingress=[{"fromEntities": ["all"], "toPorts": [http]}])
    report = with_cilium("team-b/shut", "team-b/db:5432", team_b=[asking])
    assert (report["outcome"], report["exit_code"]) == ("not decided", 3)
    text = as_text(report)
    assert text.startswith("team-b/shut -> team-b/db:5432: not decided\n? team-b/db:")
    assert "network policies, ingress: not decided: CiliumNetworkPolicy team-b/http, ingress[0] may" in text
    # One denial on the way is enough of an answer.
    denial = ciliums("never", egressDeny=[{}], egress=[{}])
    report = with_cilium("team-b/shut", "team-b/db:5432", team_b=[asking], wide=[denial])
    assert report["outcome"] == "denied"


def test_a_name_is_opened_by_its_name() -> None:
    names = ciliums("names", "team-a", egress=[{"toFQDNs": [{"matchName": "data.example.com"}]}])
    report = with_cilium("team-a/web", "data.example.com:9999", team_a=[names])
    assert report["outcome"] == "allowed", as_text(report)
    assert with_cilium("team-a/web", "203.0.113.200:9999", team_a=[names])["outcome"] == "allowed"
    assert with_cilium("team-a/web", "203.0.113.201:9999", team_a=[names])["outcome"] == "denied"


def test_nodes_are_found_by_the_addresses_that_cilium_gives_them() -> None:
    addresses = [
        {"type": "InternalIP", "ip": ADDRESSES["az-1"]},
        {"type": "CiliumInternalIP", "ip": "10.245.0.9"},
    ]
    node = {
        "metadata": {"name": "az-1"},
        "spec": {"addresses": addresses, "ipam": {"podCIDRs": ["10.245.0.0/24"]}},
    }
    closed = ciliums("closed", "team-b", egress=[{"toEntities": ["kube-apiserver"]}])
    report = with_cilium("team-b/shut", "10.245.0.9:4240", team_b=[closed], nodes=[node])
    assert report["routes"][0]["to"] == "host az-1"
    assert report["outcome"] == "allowed", as_text(report)
    api = HeldApi({f"{V2}/ciliumnodes": [node]})
    found = Lookup(t.cast("Api", api), {}, cilium=True)
    assert found.node_parts == {"az-1": (ipaddress.ip_network("10.245.0.0/24"),)}
    # What flannel would have had there is nobody's.
    assert ipaddress.ip_address("10.245.0.0") not in found.own_addresses("az-1")


def test_without_tables_the_world_is_open() -> None:
    assert asked("team-b/db", "8.8.8.8:53/udp", egress_enabled=False)["outcome"] == "allowed"
    assert asked("team-b/db", "8.8.8.8:53/udp")["outcome"] == "denied"


def test_the_text() -> None:
    assert as_text(asked("team-a/web", "db.team-b.svc:15432")).splitlines() == [
        "team-a/web -> db.team-b.svc:15432: partly allowed",
        "✓ team-b/db: 10.244.0.20 TCP 5432",
        "    network policies, egress: passes: NetworkPolicy team-a/out, egress[0]",
        "    table of the node: passes: pods reach each other",
        "    network policies, ingress: passes: NetworkPolicy team-b/database, ingress[0]",
        "✗ team-b/shut: 10.244.1.21 TCP 5432",
        "    network policies, egress: passes: NetworkPolicy team-a/out, egress[0]",
        "    table of the node: passes: pods reach each other",
        "    network policies, ingress: denied: NetworkPolicy team-b/deny: no rule opens it",
    ]


@pytest.mark.parametrize(
    ("source", "target", "why"),
    [
        ("web", "team-b/db:1", "'web' is no pod"),
        ("team-a/gone", "team-b/db:1", "There is no pod team-a/gone"),
        ("team-a/web", "team-b/gone:1", "There is no pod team-b/gone"),
        ("team-a/web", "team-b/db", "no place that a connection can go to"),
        ("team-a/web", "team-b/db:http", "no port called http; it has sql|no port called http"),
        ("team-a/web", "gone.team-b.svc:80", "There is no service team-b/gone"),
        ("team-a/web", "db.team-b.svc:80", "has no port 80/tcp. It has: 15432/tcp"),
        ("team-a/web", "10.1.1.1:http", "10.1.1.1 has no port called http"),
    ],
)
def test_questions_that_make_no_sense(source: str, target: str, why: str) -> None:
    with pytest.raises(QuestionError) as caught:
        asked(source, target)
    assert any(each in str(caught.value) for each in why.split("|"))


def test_second_addresses_are_found_although_the_api_does_not_search_for_them() -> None:
    api = HeldApi()
    for each in api.objects:
        if each["kind"] == "Node" and each["metadata"]["name"] == "az-1":
            each["spec"]["podCIDRs"] = [*each["spec"]["podCIDRs"], "fd00:10:244::/64"]
        if each["kind"] == "Pod" and each["metadata"]["name"] == "db":
            each["status"]["podIPs"] = [*each["status"]["podIPs"], {"ip": "fd00:10:244::20"}]
        if each["kind"] == "Service":
            each["spec"]["clusterIPs"] = ["10.96.0.77", "fd00:10:96::77"]
    lookup = Lookup(t.cast("Api", api), {})
    found = lookup.at(ipaddress.ip_address("fd00:10:244::20"))
    assert isinstance(found, Endpoint)
    assert found.name == "team-b/db"
    assert lookup.at(ipaddress.ip_address("fd00:10:96::77")) == Service("team-b", "db")
    report = ask(policy_site.site(), lookup, "team-a/web", "[fd00:10:96::77]:15432", NOW, resolve)
    assert report["routes"] == []  # the slice has no endpoint of this family


@pytest.mark.parametrize(
    ("text", "what", "protocol", "port"),
    [
        ("a/b:80", Pod("a", "b"), "TCP", 80),
        ("a/b.c:web/udp", Pod("a", "b.c"), "UDP", "web"),
        ("10.0.0.1:65535", ipaddress.ip_address("10.0.0.1"), "TCP", 65535),
        ("[2001:db8::1]:53/UDP", ipaddress.ip_address("2001:db8::1"), "UDP", 53),
        ("web.a.svc:80", Service("a", "web"), "TCP", 80),
        ("Web.A.svc.cluster.local.:80", Service("a", "web"), "TCP", 80),
        ("PyPI.example.com:443", Name("pypi.example.com"), "TCP", 443),
    ],
)
def test_what_a_target_means(text: str, what: object, protocol: str, port: int | str) -> None:
    assert target_of(text, "cluster.local") == (what, protocol, port)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":80",
        "a/b:",
        "a/b:0",
        "a/b:65536",
        "a/b:80/icmp",
        "127.0.0.1:80",
        "[::1]:80",
        "x.cluster.local:80",
        "a/B:80",
    ],
)
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(QuestionError):
        target_of(text, "cluster.local")


@settings(max_examples=30)
@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (pod_of, lambda given: target_of(given, "cluster.local")):
        try:
            read(text)
        except QuestionError as error:
            assert error.remedy
