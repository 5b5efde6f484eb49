# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""NetworkPolicy objects against a second evaluator that only knows sets, and cases of the API's reference."""

from __future__ import annotations

import functools
import ipaddress
import itertools
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.endpoints import (
    Connection,
    Decision,
    Endpoint,
    Port,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.policies import (
    Direction,
    NetworkPolicies,
    matches,
)
from hypothesis import given, settings
from hypothesis import strategies as st

Object = dict[str, t.Any]
NAMESPACES: dict[str, dict[str, str]] = {"a": {"team": "red"}, "b": {"team": "blue", "kind": "prod"}}
PORTS = (53, 80, 8080)
WAYS = [(protocol, port) for protocol in ("TCP", "UDP") for port in PORTS]


def pod(namespace: str, number: int, host_network: bool = False, **labels: str) -> Endpoint:
    """Return a pod whose address is its number, whose port ``web`` is 80 or 8080."""
    return Endpoint(
        name=f"{namespace}/p{number}",
        addresses=(ipaddress.ip_address(f"10.244.{number % 2}.{number}"),),
        namespace=namespace,
        labels=labels,
        namespace_labels=NAMESPACES[namespace],
        node=f"n{number % 2}",
        host_network=host_network,
        ports=(Port("web", "TCP", 8080 if number % 2 else 80),),
    )


PODS = (
    pod("a", 10),
    pod("a", 11, app="web"),
    pod("a", 12, app="db", tier="x"),
    pod("b", 13, app="web"),
    pod("b", 14, tier="y"),
    pod("b", 15, host_network=True, app="web"),
)
OUTSIDE = tuple(Endpoint(text, (ipaddress.ip_address(text),)) for text in ("203.0.113.5", "10.244.1.200"))
EVERYBODY = PODS + OUTSIDE


def policy(namespace: str, **spec: t.Any) -> Object:
    """Return a policy as the API gives it."""
    return {"metadata": {"namespace": namespace, "name": "policy"}, "spec": {"podSelector": {}, **spec}}


def connect(source: Endpoint, destination: Endpoint, protocol: str = "TCP", port: int = 80) -> Connection:
    """Return a connection to a destination's first address."""
    return Connection(source, destination, destination.addresses[0], protocol, port)


def judged(direction: Direction, policies: list[Object], way: Connection) -> Decision:
    """Return what policies say, that somebody is open where they have no say."""
    return NetworkPolicies(direction, policies).judge(way) or Decision(True, "no say")


# The second evaluator: what a policy opens, as a set of everything that there is.


def reference_selector(selector: Object, labels: t.Mapping[str, str]) -> bool:
    pairs = set(labels.items())
    wanted = set((selector.get("matchLabels") or {}).items())
    verdict = wanted <= pairs
    for one in selector.get("matchExpressions") or []:
        values = {(one["key"], value) for value in one.get("values") or []}
        verdict &= {
            "In": bool(values & pairs),
            "NotIn": not values & pairs,
            "Exists": one["key"] in dict(pairs),
            "DoesNotExist": one["key"] not in dict(pairs),
        }[one["operator"]]
    return verdict


@functools.cache
def addresses(network: str) -> frozenset[str]:
    """Return all addresses of a network."""
    return frozenset(map(str, ipaddress.ip_network(network)))


def reference_peers(peers: list[Object] | None, namespace: str) -> set[str]:
    if not peers:
        return {each.name for each in EVERYBODY}
    found = set()
    for peer, one in itertools.product(peers, EVERYBODY):
        if "ipBlock" in peer:
            inside = addresses(peer["ipBlock"]["cidr"])
            for hole in peer["ipBlock"].get("except", ()):
                inside = inside - addresses(hole)
            if str(one.addresses[0]) in inside:
                found.add(one.name)
        elif one.namespace and not one.host_network:
            where = (
                reference_selector(peer["namespaceSelector"], one.namespace_labels)
                if "namespaceSelector" in peer
                else one.namespace == namespace
            )
            if where and reference_selector(peer.get("podSelector", {}), one.labels):
                found.add(one.name)
    return found


def reference_ports(ports: list[Object] | None, destination: Endpoint) -> set[tuple[str, int]]:
    if not ports:
        return set(WAYS)
    found = set()
    for one in ports:
        protocol = one.get("protocol", "TCP")
        numbers = set(PORTS)
        if isinstance(one.get("port"), str):
            numbers = {
                each.number
                for each in destination.ports
                if (each.name, each.protocol) == (one["port"], protocol)
            }
        elif "port" in one:
            last: int = one["port"] if "endPort" not in one else one["endPort"]
            numbers = set(range(one["port"], last + 1))
        found |= {(protocol, number) for number in numbers}
    return found


def reference(direction: Direction, policies: list[Object], way: Connection) -> bool:
    subject, peer = way.source, way.destination
    if direction == "ingress":
        subject, peer = peer, subject
    if not subject.namespace or subject.host_network or subject == peer:
        return True
    if peer.host_network and peer.node == subject.node:
        return True
    selecting = [
        each["spec"]
        for each in policies
        if each["metadata"]["namespace"] == subject.namespace
        and direction.capitalize() in each["spec"]["policyTypes"]
        and reference_selector(each["spec"]["podSelector"], subject.labels)
    ]
    return not selecting or any(
        peer.name in reference_peers(rule.get("from" if direction == "ingress" else "to"), subject.namespace)
        and (way.protocol, way.port) in reference_ports(rule.get("ports"), way.destination)
        for spec in selecting
        for rule in spec.get(direction, ())
    )


KEYS, VALUES = (
    st.sampled_from(["app", "tier", "team", "kind"]),
    st.sampled_from(["web", "db", "x", "red", "prod"]),
)
EXPRESSIONS = st.one_of(
    st.fixed_dictionaries(
        {
            "key": KEYS,
            "operator": st.sampled_from(["In", "NotIn"]),
            "values": st.lists(VALUES, min_size=1, max_size=2),
        }
    ),
    st.fixed_dictionaries({"key": KEYS, "operator": st.sampled_from(["Exists", "DoesNotExist"])}),
)
SELECTORS = st.fixed_dictionaries(
    {},
    optional={
        "matchLabels": st.dictionaries(KEYS, VALUES, max_size=1),
        "matchExpressions": st.lists(EXPRESSIONS, max_size=2),
    },
)
BLOCKS = st.fixed_dictionaries(
    {"cidr": st.sampled_from(["10.244.0.0/23", "10.244.1.0/24", "203.0.113.0/29"])},
    optional={"except": st.lists(st.sampled_from(["10.244.1.0/28", "10.244.1.200/32"]), max_size=2)},
)
PEERS = st.one_of(
    st.fixed_dictionaries({"ipBlock": BLOCKS}),
    st.fixed_dictionaries({"podSelector": SELECTORS}, optional={"namespaceSelector": SELECTORS}),
    st.fixed_dictionaries({"namespaceSelector": SELECTORS}),
)
PROTOCOLS = st.sampled_from(["TCP", "UDP"])
LISTED = st.one_of(
    st.fixed_dictionaries({}, optional={"protocol": PROTOCOLS}),
    st.fixed_dictionaries({"port": st.just("web")}, optional={"protocol": PROTOCOLS}),
    st.fixed_dictionaries(
        {"port": st.sampled_from([53, 79, 80])},
        optional={"protocol": PROTOCOLS, "endPort": st.sampled_from([80, 8080])},
    ),
)


def rules(peers: str) -> st.SearchStrategy[list[Object]]:
    """Return rules whose peers stand under a key."""
    rule = st.fixed_dictionaries(
        {}, optional={peers: st.lists(PEERS, max_size=2), "ports": st.lists(LISTED, max_size=2)}
    )
    return st.lists(rule, max_size=2)


POLICIES = st.lists(
    st.builds(
        policy,
        st.sampled_from(sorted(NAMESPACES)),
        podSelector=SELECTORS,
        policyTypes=st.sampled_from([["Ingress"], ["Egress"], ["Ingress", "Egress"]]),
        ingress=rules("from"),
        egress=rules("to"),
    ),
    max_size=3,
)


@settings(max_examples=15)
@given(POLICIES, st.sampled_from(EVERYBODY), st.sampled_from(EVERYBODY), st.sampled_from(WAYS))
def test_as_a_second_evaluator_says(
    policies: list[Object], source: Endpoint, destination: Endpoint, way: tuple[str, int]
) -> None:
    asked = connect(source, destination, *way)
    for direction in t.get_args(Direction):
        assert judged(direction, policies, asked).allowed == reference(direction, policies, asked)


WEB = {"matchLabels": {"app": "web"}}


@pytest.mark.parametrize(
    ("spec", "source", "port", "rule"),
    [
        # Without types a policy is about what comes in.
        ({}, PODS[0], 80, None),
        ({"ingress": [{}]}, PODS[0], 80, "ingress[0]"),
        ({"policyTypes": ["Egress"]}, PODS[0], 80, "no policy of a selects a/p11 for ingress"),
        ({"podSelector": {"matchLabels": {"app": "db"}}}, PODS[0], 80, "no policy of a selects"),
        # The second rule; both selectors of one peer must hold, either of two peers does.
        (
            {"ingress": [{"from": [{"podSelector": WEB}]}, {"ports": [{"port": 80}]}]},
            PODS[0],
            80,
            "ingress[1]",
        ),
        ({"ingress": [{"from": [{"podSelector": WEB}]}]}, PODS[3], 80, None),
        ({"ingress": [{"from": [{"podSelector": WEB, "namespaceSelector": {}}]}]}, PODS[3], 80, "ingress[0]"),
        # A name is a port of the pod that takes the connection.
        ({"ingress": [{"ports": [{"port": "web"}]}]}, PODS[0], 8080, "ingress[0]"),
        ({"ingress": [{"ports": [{"port": "web"}]}]}, PODS[0], 80, None),
        ({"ingress": [{"ports": [{"port": 70, "endPort": 80}]}]}, PODS[0], 80, "ingress[0]"),
        ({"ingress": [{"from": [{"ipBlock": {"cidr": "10.244.0.0/24"}}]}]}, PODS[0], 80, "ingress[0]"),
        (
            {"ingress": [{"from": [{"ipBlock": {"cidr": "10.244.0.0/24", "except": ["10.244.0.8/29"]}}]}]},
            PODS[0],
            80,
            None,
        ),
        # Labels are those of pods with a network of their own; from the own node all passes.
        ({"ingress": [{"from": [{"namespaceSelector": {}}]}]}, OUTSIDE[0], 80, None),
        ({}, PODS[5], 80, "its own node (n1)"),
        ({}, PODS[1], 80, "itself"),
    ],
)
def test_the_rule_that_decides_is_named(spec: Object, source: Endpoint, port: int, rule: str | None) -> None:
    said = judged("ingress", [policy("a", **spec)], connect(source, PODS[1], port=port))
    assert said.allowed == (rule is not None)
    assert (rule or "NetworkPolicy a/policy: no rule opens it") in said.rule


def test_what_only_lacks_the_port_is_said() -> None:
    said = judged("ingress", [policy("a", ingress=[{"ports": [{"port": 443}]}])], connect(PODS[0], PODS[1]))
    assert said == Decision(
        False,
        "NetworkPolicy a/policy: no rule opens it; NetworkPolicy a/policy, ingress[0]: all but the port",
    )


def test_a_missing_key_is_not_in_a_list() -> None:
    assert matches({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, {})


@pytest.mark.parametrize(("source", "allowed"), [(PODS[0], False), (PODS[5], False), (OUTSIDE[1], True)])
def test_blocks_may_mean_the_world_only(source: Endpoint, allowed: bool) -> None:
    policies = [policy("a", ingress=[{"from": [{"ipBlock": {"cidr": "10.244.0.0/16"}}]}])]
    way = connect(source, PODS[2])
    assert NetworkPolicies("ingress", policies).judge(way) == Decision(
        True, "NetworkPolicy a/policy, ingress[0]"
    )
    said = NetworkPolicies("ingress", policies, blocks_hold_cluster=False).judge(way)
    assert said is not None
    assert said.allowed is allowed
