# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Policies of Cilium's own kinds beside NetworkPolicy objects: what opens, what denies, what is not known."""

from __future__ import annotations

import ipaddress
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy import cilium_peers
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.cilium_policies import CiliumPolicies
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.endpoints import (
    Address,
    Connection,
    Decision,
    Endpoint,
    Port,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.policies import Direction
from hypothesis import given, settings
from hypothesis import strategies as st

Object = dict[str, t.Any]
SPACES = {"a": {"team": "red"}, "b": {"team": "blue"}}
NAMES = {"pypi.example.com": ["203.0.113.5"], "other.example.com": ["203.0.113.6"]}


def pod(name: str, address: str, node: str = "n1", **labels: str) -> Endpoint:
    """Return a pod; its port ``web`` is 8080."""
    namespace = name.partition("/")[0]
    return Endpoint(
        name, (ipaddress.ip_address(address),), namespace, labels, SPACES[namespace], node,
        ports=(Port("web", "TCP", 8080),), service_account="robot",
    )  # fmt: skip


def node(name: str, address: str) -> Endpoint:
    """Return a node."""
    return Endpoint(f"host {name}", (ipaddress.ip_address(address),), node=name, host_network=True)


def outside(address: str, name: str = "") -> Endpoint:
    """Return an address outside of the cluster, or a name that stands for it."""
    return Endpoint(name or address, (ipaddress.ip_address(address),))


WEB = pod("a/web", "10.245.0.10", app="web", **{"pod-template-hash": "x", "app.kubernetes.io/name": "web"})
NEAR = pod("a/near", "10.245.0.11", app="near")
DB = pod("b/db", "10.245.1.20", "n2", app="db")
OWN, REMOTE, PLANE = node("n1", "10.0.0.1"), node("n2", "10.0.0.2"), node("n3", "10.0.0.3")
WORLD = outside("203.0.113.5")
PYPI = outside("203.0.113.5", "pypi.example.com")
EVERYBODY = (NEAR, DB, OWN, REMOTE, PLANE, WORLD, PYPI)


def resolve(name: str) -> list[Address]:
    """Return the addresses of a name."""
    if name not in NAMES:
        raise OSError(-2, "Name or service not known")
    return [ipaddress.ip_address(text) for text in NAMES[name]]


def policy(namespace: str = "a", name: str = "p", **spec: t.Any) -> Object:
    """Return a policy of Cilium's; without a namespace one of the whole cluster."""
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"metadata": metadata, "spec": {"endpointSelector": {}, **spec}}


def objects(**spec: t.Any) -> Object:
    """Return a NetworkPolicy."""
    return {"metadata": {"namespace": "a", "name": "np"}, "spec": {"podSelector": {}, **spec}}


def judged(
    direction: Direction,
    own: list[Object],
    source: Endpoint,
    destination: Endpoint,
    port: int = 80,
    protocol: str = "TCP",
    policies: t.Sequence[Object] = (),
) -> Decision | None:
    """Return what the policies say."""
    judge = CiliumPolicies(direction, policies, own, frozenset({"n3"}), resolve)
    return judge.judge(Connection(source, destination, destination.addresses[0], protocol, port))


def said(rules: t.Any, to: Endpoint, port: int = 80, protocol: str = "TCP", namespace: str = "a") -> str:
    """Return yes, no or unknown for the egress rules of a policy."""
    found = judged("egress", [policy(namespace, egress=rules)], WEB, to, port, protocol)
    assert found is not None
    return "unknown" if found.undecided else "yes" if found.allowed else "no"


def selector(**labels: str) -> Object:
    """Return a selector."""
    return {"matchLabels": labels}


PORT_80 = {"ports": [{"port": "80", "protocol": "TCP"}]}


@pytest.mark.parametrize(
    ("rule", "to", "answer"),
    [
        # Nothing opens nothing; ports alone are those of everybody.
        ({}, NEAR, "no"),
        ({"toPorts": [PORT_80]}, WORLD, "yes"),
        ({"toPorts": []}, WORLD, "no"),
        # Pods of the policy's namespace, unless another one is named.
        ({"toEndpoints": [{}]}, NEAR, "yes"),
        ({"toEndpoints": [{}]}, DB, "no"),
        ({"toEndpoints": [{}]}, WORLD, "no"),
        ({"toEndpoints": [{}]}, REMOTE, "no"),
        ({"toEndpoints": []}, NEAR, "no"),
        ({"toEndpoints": [], "toPorts": [PORT_80]}, NEAR, "no"),
        ({"toEndpoints": [selector(app="near")]}, NEAR, "yes"),
        ({"toEndpoints": [selector(**{"k8s:app": "near"})]}, NEAR, "yes"),
        ({"toEndpoints": [selector(**{"any:app": "near"})]}, NEAR, "yes"),
        ({"toEndpoints": [selector(**{"reserved:app": "near"})]}, NEAR, "no"),
        ({"toEndpoints": [selector(**{"container:app": "near"})]}, NEAR, "unknown"),
        ({"toEndpoints": [selector(app="db")]}, DB, "no"),
        ({"toEndpoints": [selector(**{"k8s:io.kubernetes.pod.namespace": "b"})]}, DB, "yes"),
        ({"toEndpoints": [selector(**{"io.kubernetes.pod.namespace": "b", "app": "x"})]}, DB, "no"),
        ({"toEndpoints": [selector(**{"io.cilium.k8s.namespace.labels.team": "blue"})]}, DB, "yes"),
        ({"toEndpoints": [selector(**{"io.cilium.k8s.namespace.labels.team": "red"})]}, DB, "no"),
        ({"toEndpoints": [selector(**{"io.cilium.k8s.policy.serviceaccount": "robot"})]}, NEAR, "yes"),
        ({"toEndpoints": [selector(**{"io.cilium.k8s.policy.cluster": "other"})]}, NEAR, "no"),
        ({"toEndpoints": [{"matchExpressions": [{"key": "app", "operator": "Exists"}]}]}, NEAR, "yes"),
        (
            {"toEndpoints": [{"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]}]},
            NEAR,
            "yes",
        ),
        ({"toEndpoints": [selector(**{"reserved:remote-node": ""})]}, REMOTE, "yes"),
        # Entities.
        ({"toEntities": ["all"]}, WORLD, "yes"),
        ({"toEntities": ["world"]}, WORLD, "yes"),
        ({"toEntities": ["world"]}, REMOTE, "no"),
        ({"toEntities": ["world-ipv4"]}, WORLD, "unknown"),
        ({"toEntities": ["world-ipv4"]}, DB, "no"),
        ({"toEntities": ["cluster"]}, DB, "yes"),
        ({"toEntities": ["cluster"]}, OWN, "yes"),
        ({"toEntities": ["cluster"]}, WORLD, "no"),
        ({"toEntities": ["host"]}, OWN, "yes"),
        ({"toEntities": ["host"]}, REMOTE, "no"),
        ({"toEntities": ["remote-node"]}, PLANE, "yes"),
        ({"toEntities": ["kube-apiserver"]}, PLANE, "yes"),
        ({"toEntities": ["kube-apiserver"]}, REMOTE, "no"),
        ({"toEntities": ["none"]}, WORLD, "no"),
        ({"toEntities": []}, WORLD, "no"),
        # Networks hold what is outside of the cluster.
        ({"toCIDR": ["203.0.113.0/24"]}, WORLD, "yes"),
        ({"toCIDR": ["203.0.113.5"]}, WORLD, "yes"),
        ({"toCIDR": ["203.0.114.0/24"]}, WORLD, "no"),
        ({"toCIDR": ["0.0.0.0/0"]}, DB, "no"),
        ({"toCIDR": ["0.0.0.0/0"]}, REMOTE, "no"),
        ({"toCIDRSet": [{"cidr": "203.0.113.0/24", "except": ["203.0.113.0/29"]}]}, WORLD, "no"),
        ({"toCIDRSet": [{"cidr": "203.0.113.0/24", "except": ["203.0.113.8/29"]}]}, WORLD, "yes"),
        ({"toCIDRSet": [{"cidrGroupRef": "partners"}]}, WORLD, "unknown"),
        ({"toCIDRSet": [{"cidrGroupRef": "partners"}]}, DB, "no"),
        # Names: the one that was asked for, or one whose address is known.
        ({"toFQDNs": [{"matchName": "pypi.example.com"}]}, PYPI, "yes"),
        ({"toFQDNs": [{"matchName": "PyPI.example.com."}]}, PYPI, "yes"),
        ({"toFQDNs": [{"matchPattern": "*.example.com"}]}, PYPI, "yes"),
        ({"toFQDNs": [{"matchPattern": "*.example.org"}]}, PYPI, "no"),
        ({"toFQDNs": [{"matchName": "pypi.example.com"}]}, WORLD, "yes"),
        ({"toFQDNs": [{"matchName": "other.example.com"}]}, WORLD, "no"),
        ({"toFQDNs": [{"matchName": "gone.example.com"}]}, WORLD, "unknown"),
        ({"toFQDNs": [{"matchPattern": "*.example.com"}]}, WORLD, "unknown"),
        ({"toFQDNs": [{"matchPattern": "*"}]}, DB, "no"),
        # What is not read.
        ({"toServices": [{"k8sService": {"serviceName": "x"}}]}, DB, "unknown"),
        ({"toServices": [{"k8sService": {"serviceName": "x"}}]}, REMOTE, "no"),
        ({"toGroups": [{"aws": {}}]}, WORLD, "unknown"),
        ({"toGroups": [{"aws": {}}]}, DB, "no"),
        ({"toNodes": [selector(role="x")]}, REMOTE, "unknown"),
        ({"toNodes": [selector(role="x")]}, OWN, "no"),
        ({"toRequires": [{}], "toEntities": ["all"]}, DB, "unknown"),
        ({"toEntities": ["all"], "authentication": {"mode": "required"}}, DB, "unknown"),
        ({"toEntities": ["all"], "authentication": {"mode": "disabled"}}, DB, "yes"),
        ({"icmps": [{"fields": [{"type": 8}]}]}, DB, "no"),
    ],
)
def test_whom_a_rule_opens(rule: Object, to: Endpoint, answer: str) -> None:
    assert said([rule], to) == answer


@pytest.mark.parametrize(
    ("listed", "port", "protocol", "answer"),
    [
        ({"ports": [{"port": "80"}]}, 80, "UDP", "yes"),
        ({"ports": [{"port": "80", "protocol": "ANY"}]}, 80, "SCTP", "yes"),
        ({"ports": [{"port": "80", "protocol": "UDP"}]}, 80, "TCP", "no"),
        ({"ports": [{"port": "80", "endPort": 90}]}, 90, "TCP", "yes"),
        ({"ports": [{"port": "80", "endPort": 90}]}, 91, "TCP", "no"),
        ({"ports": [{"port": "80"}]}, 81, "TCP", "no"),
        ({"ports": [{"port": "0", "protocol": "UDP"}]}, 53, "UDP", "yes"),
        ({"ports": [{"protocol": "UDP"}]}, 53, "UDP", "yes"),
        ({"ports": [{"port": "WEB"}]}, 8080, "TCP", "yes"),
        ({"ports": [{"port": "web"}]}, 8080, "UDP", "no"),
        ({"ports": [{"port": "web"}]}, 80, "TCP", "no"),
        ({"ports": [{"port": "53"}], "rules": {"dns": [{"matchPattern": "*"}]}}, 53, "UDP", "unknown"),
        ({"ports": [{"port": "80"}], "rules": {"http": [{"method": "GET"}]}}, 80, "TCP", "unknown"),
        ({"ports": [{"port": "80"}], "rules": {"http": [{"method": "GET"}]}}, 81, "TCP", "no"),
        ({"ports": [{"port": "80"}], "rules": {}}, 80, "TCP", "yes"),
        ({"ports": [{"port": "443"}], "serverNames": ["x.test"]}, 443, "TCP", "unknown"),
        ({"rules": {"http": []}}, 80, "TCP", "no"),
    ],
)
def test_ports(listed: Object, port: int, protocol: str, answer: str) -> None:
    assert said([{"toEndpoints": [{}], "toPorts": [listed]}], NEAR, port, protocol) == answer
    both = [PORT_80, listed]
    if (port, protocol) == (80, "TCP"):
        assert said([{"toEndpoints": [{}], "toPorts": both}], NEAR, port, protocol) == "yes"


def test_a_policy_of_the_cluster_means_pods_everywhere() -> None:
    for to, answer in ((NEAR, "yes"), (DB, "yes"), (WORLD, "no"), (REMOTE, "no")):
        assert said([{"toEndpoints": [{}]}], to, namespace="") == answer
    only = [{"toEndpoints": [selector(app="db")]}]
    assert said(only, DB, namespace="") == "yes"
    assert said(only, NEAR, namespace="") == "no"


ALL = [{"toEntities": ["all"]}]


@pytest.mark.parametrize(
    ("policies", "answer"),
    [
        ([], "no policy closes a/web for egress"),
        ([policy(ingress=[{}])], "no policy closes a/web for egress"),
        ([policy(egress=[])], "no policy closes a/web for egress"),
        ([policy(egress=[{}])], None),
        ([policy(egressDeny=[{}])], None),
        ([policy(egress=[{}], enableDefaultDeny={"egress": False})], "no policy closes"),
        ([policy(egress=[{}], enableDefaultDeny={"ingress": False})], None),
        ([policy(ingress=[{}], enableDefaultDeny={"egress": True})], "no policy closes"),
        ([policy(egress=[{}]), policy(name="q", egress=ALL)], "CiliumNetworkPolicy a/q, egress[0]"),
        (
            [policy(egress=[{}]), policy(name="q", egress=ALL, enableDefaultDeny={"egress": False})],
            "CiliumNetworkPolicy a/q, egress[0]",
        ),
        ([policy(egress=ALL), policy(name="q", egressDeny=ALL)], None),
        (
            [policy(egress=ALL, egressDeny=[{"toPorts": [PORT_80]}], enableDefaultDeny={"egress": False})],
            None,
        ),
        ([policy("", egress=ALL), policy(egress=[{}])], "CiliumClusterwideNetworkPolicy p, egress[0]"),
        ([policy("", egressDeny=ALL, enableDefaultDeny={"egress": False})], None),
        ([policy("b", egressDeny=ALL)], "no policy closes"),
        ([policy(endpointSelector=selector(app="near"), egressDeny=ALL)], "no policy closes"),
        # Cilium knows no hash of a template, and does know what the application is called.
        ([policy(endpointSelector=selector(**{"pod-template-hash": "x"}), egressDeny=ALL)], "no policy"),
        ([policy(endpointSelector=selector(**{"app.kubernetes.io/name": "web"}), egressDeny=ALL)], None),
        # A selector in a namespace cannot leave it, a policy about nodes is not about pods.
        ([policy(endpointSelector=selector(**{"io.kubernetes.pod.namespace": "b"}), egressDeny=ALL)], None),
        ([{"metadata": {"name": "h"}, "spec": {"nodeSelector": {}, "egressDeny": ALL}}], "no policy closes"),
        (
            [
                {
                    "metadata": {"name": "two", "namespace": "a"},
                    "specs": [policy(egress=[{}])["spec"], policy(egress=ALL)["spec"]],
                }
            ],
            "CiliumNetworkPolicy a/two, egress[0]",
        ),
    ],
)
def test_who_wins(policies: list[Object], answer: str | None) -> None:
    found = judged("egress", policies, WEB, DB)
    assert found is not None and not found.undecided
    assert found.allowed == (answer is not None), found.rule
    assert (answer or "") in found.rule


def test_all_kinds_count_together() -> None:
    closed = objects(policyTypes=["Egress"])
    opening = objects(policyTypes=["Egress"], egress=[{"to": [{"namespaceSelector": {}}]}])
    # What one kind closes another one opens, and a denial wins over both.
    own = [policy(egress=ALL)]
    assert judged("egress", own, WEB, DB, policies=[closed]) == Decision(
        True, "CiliumNetworkPolicy a/p, egress[0]", False
    )
    assert judged("egress", [policy(egress=[{}])], WEB, DB, policies=[opening]) == Decision(
        True, "NetworkPolicy a/np, egress[0]", False,
    )  # fmt: skip
    assert judged("egress", [policy(egressDeny=ALL)], WEB, DB, policies=[opening]) == Decision(
        False, "CiliumNetworkPolicy a/p, egressDeny[0] denies it", False,
    )  # fmt: skip
    found = judged("egress", [policy(egress=[{}])], WEB, DB, policies=[closed])
    assert found == Decision(False, "NetworkPolicy a/np, CiliumNetworkPolicy a/p: no rule opens it", False)
    ports = objects(policyTypes=["Egress"], egress=[{"ports": [{"port": 443}]}])
    found = judged("egress", [], WEB, DB, policies=[ports])
    assert found is not None and found.rule.endswith("NetworkPolicy a/np, egress[0]: all but the port")


def test_what_is_not_known_is_said() -> None:
    http = {"ports": [{"port": "80"}], "rules": {"http": [{"path": "/x"}]}}
    found = judged("egress", [policy(egress=[{"toEndpoints": [{}], "toPorts": [http]}])], WEB, NEAR)
    assert found == Decision(
        False,
        "CiliumNetworkPolicy a/p, egress[0] may open it: it judges what is in the packets too (http)",
        True,
    )
    unsure = policy(name="d", egressDeny=[{"toGroups": [{"aws": {}}]}])
    found = judged("egress", [policy(egress=ALL), unsure], WEB, WORLD)
    assert found is not None and found.undecided
    assert found.rule == (
        "CiliumNetworkPolicy a/d, egressDeny[0] may deny it: groups of another provider are not read"
    )
    # Where no rule opens it, nobody needs to know.
    found = judged("egress", [policy(egress=[{}]), unsure], WEB, WORLD)
    assert found is not None and not found.undecided and not found.allowed


AGENTS_KNOW = "labels of container are known to the agents alone"


@pytest.mark.parametrize(
    ("spec", "more", "rule"),
    [
        ({"egress": [{}]}, [], f"CiliumNetworkPolicy a/p may close it: {AGENTS_KNOW}"),
        ({"egressDeny": ALL}, [], f"CiliumNetworkPolicy a/p, egressDeny[0] may deny it: {AGENTS_KNOW}"),
        (
            {"egress": ALL},
            [policy(name="q", egress=[{}])],
            f"CiliumNetworkPolicy a/p, egress[0] may open it: {AGENTS_KNOW}",
        ),
        ({"egress": [{}]}, [policy(name="q", egress=ALL)], ""),
        ({"egress": [{}], "enableDefaultDeny": {"egress": False}}, [], ""),
    ],
)
def test_a_policy_of_which_nobody_knows_whom_it_selects(spec: Object, more: list[Object], rule: str) -> None:
    unknown = policy(endpointSelector=selector(**{"container:app": "web"}), **spec)
    found = judged("egress", [unknown, *more], WEB, DB)
    assert found is not None
    assert (found.undecided, found.rule) == (True, rule) if rule else found.allowed


def test_a_pod_and_its_own_node() -> None:
    closed = [policy(ingress=[{}], egress=[{}])]
    assert judged("ingress", closed, OWN, WEB) == Decision(
        True, "a pod's own node (n1) always reaches it", False
    )
    away = judged("ingress", closed, REMOTE, WEB)
    assert away is not None and not away.allowed
    there = judged("egress", closed, WEB, OWN)
    assert there is not None and not there.allowed
    denied = judged("ingress", [policy(ingressDeny=[{"fromEntities": ["host"]}])], OWN, WEB)
    assert denied is not None and not denied.allowed
    assert judged("egress", closed, WEB, WEB) == Decision(True, "a pod always reaches itself", False)
    assert judged("ingress", closed, WEB, REMOTE) is None


def test_ingress_has_its_own_words() -> None:
    rules = [policy(ingress=[{"fromEndpoints": [selector(app="near")], "toPorts": [PORT_80]}])]
    found = judged("ingress", rules, NEAR, WEB)
    assert found == Decision(True, "CiliumNetworkPolicy a/p, ingress[0]", False)
    found = judged("ingress", rules, DB, WEB)
    assert found == Decision(False, "CiliumNetworkPolicy a/p: no rule opens it", False)


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("pypi.example.com", "pypi.example.com", True),
        ("pypi.example.com", "xpypi.example.com", False),
        ("*.example.com", "a.b.example.com", False),
        ("*.example.com", "example.com", False),
        ("**.example.com", "a.b.example.com", True),
        ("**.example.com", "example.com", False),
        ("a*c.example.com", "abc.example.com", True),
        ("a*c.example.com", "a.c.example.com", False),
        ("*", "a.b.c", True),
        ("**.", "a", True),
        ("a.example.com", "a-example.com", False),
    ],
)
def test_names_and_patterns(pattern: str, name: str, matches: bool) -> None:
    assert bool(cilium_peers.name_pattern(pattern).fullmatch(f"{name}.")) is matches


SELECTORS = st.sampled_from([{}, selector(app="web"), selector(app="db"), selector(**{"x:app": "db"})])
PEERS = st.one_of(
    st.just({}),
    st.builds(lambda one: {"toEndpoints": one}, st.lists(SELECTORS, max_size=2)),
    st.builds(
        lambda one: {"toEntities": one},
        st.lists(st.sampled_from(["all", "world", "cluster", "host", "world-ipv4"]), max_size=2),
    ),
    st.builds(lambda one: {"toCIDR": [one]}, st.sampled_from(["203.0.113.0/24", "10.0.0.0/8"])),
)
ALLOWED = st.builds(
    lambda peer, ports: {**peer, **({"toPorts": ports} if ports else {})},
    st.one_of(PEERS, st.just({"toFQDNs": [{"matchPattern": "*.example.com"}]})),
    st.lists(
        st.sampled_from(
            [PORT_80, {"ports": [{"port": "443"}]}, {"ports": [{"port": "80"}], "rules": {"http": [{}]}}]
        ),
        max_size=2,
    ),
)
DEFAULTS = st.sampled_from([{}, {"egress": False}, {"egress": True}])
POLICIES = st.lists(
    st.builds(
        policy,
        st.sampled_from(["a", "b", ""]),
        endpointSelector=SELECTORS,
        egress=st.lists(ALLOWED, max_size=2),
        egressDeny=st.lists(PEERS, max_size=1),
        enableDefaultDeny=DEFAULTS,
    ),
    max_size=3,
)
RANK = {"denied": 0, "undecided": 1, "allowed": 2}


def rank(policies: list[Object], to: Endpoint, port: int) -> int:
    """Return how open somebody is."""
    found = judged("egress", policies, WEB, to, port)
    assert found is not None
    return RANK["undecided" if found.undecided else "allowed" if found.allowed else "denied"]


@settings(max_examples=60)
@given(POLICIES, st.sampled_from(EVERYBODY), st.sampled_from([80, 443, 22]), DEFAULTS, st.integers(0, 3))
def test_a_denial_wins_over_everything(
    policies: list[Object], to: Endpoint, port: int, default: Object, place: int
) -> None:
    denial = policy(name="deny", egressDeny=ALL, enableDefaultDeny=default)
    policies.insert(place, denial)
    found = judged("egress", policies, WEB, to, port)
    assert found is not None and not found.allowed and not found.undecided
    assert "egressDeny" in found.rule


@settings(max_examples=60)
@given(POLICIES, POLICIES, st.sampled_from(EVERYBODY), st.sampled_from([80, 443, 22]))
def test_denials_only_take_and_rules_that_close_nothing_only_give(
    policies: list[Object], more: list[Object], to: Endpoint, port: int
) -> None:
    before = rank(policies, to, port)
    taking = [
        policy(name="t", egressDeny=each["spec"]["egressDeny"], enableDefaultDeny={"egress": False})
        for each in more
    ]
    giving = [
        policy(name="g", egress=each["spec"]["egress"], enableDefaultDeny={"egress": False}) for each in more
    ]
    assert rank([*policies, *taking], to, port) <= before <= rank([*policies, *giving], to, port)


@settings(max_examples=30)
@given(POLICIES, st.randoms(use_true_random=False), st.sampled_from(EVERYBODY))
def test_the_order_of_policies_is_no_matter(policies: list[Object], random: t.Any, to: Endpoint) -> None:
    shuffled = random.sample(policies, len(policies))
    assert rank(policies, to, 80) == rank(shuffled, to, 80)
