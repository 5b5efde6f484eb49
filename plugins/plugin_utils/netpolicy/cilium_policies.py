# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What all network policies together say about a connection where Cilium enforces them.

NetworkPolicy, CiliumNetworkPolicy and CiliumClusterwideNetworkPolicy end up in one list of an agent: a rule
that denies wins over any that allows, whoever wrote it; then one rule that allows is enough; and where none
does, a pod is closed in the directions for which some policy that selects it closes it.
"""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Iterator, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy import cilium_peers as peers
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.cilium_peers import (
    NO,
    YES,
    Match,
    Object,
    Peer,
    Resolve,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.endpoints import (
    Connection,
    Decision,
    Endpoint,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.policies import (
    Direction,
    NetworkPolicies,
)

_PREFIX: dict[Direction, str] = {"ingress": "from", "egress": "to"}
_L7 = ("rules", "terminatingTLS", "originatingTLS", "serverNames", "listener")
_OTHERS = ("toPorts", "icmps", "authentication")


class Rule(t.NamedTuple):
    """One entry of a policy that selects the judged pod.

    Args:
        name: what people call it.
        namespace: of its policy, empty for one of the whole cluster.
        denies: whether it denies what it holds.
        closes: whether its policy closes the pod in this direction.
        body: the entry.
        selects: whether its policy selects the pod, which may not be known.
    """

    name: str
    namespace: str
    denies: bool
    closes: bool
    body: Object
    selects: Match = YES


@dataclasses.dataclass(frozen=True, slots=True)
class CiliumPolicies:
    """The policies of one direction, of all three kinds.

    Args:
        direction: ``egress`` judges what the source sends, ``ingress`` what the destination takes.
        policies: NetworkPolicy objects of the judged pod's namespace.
        own: CiliumNetworkPolicy objects of that namespace, CiliumClusterwideNetworkPolicy objects of the
            cluster; none that Cilium has rejected.
        planes: names of the nodes that have API servers.
        resolve: finds the addresses of a name outside.
    """

    direction: Direction
    policies: Sequence[Object]
    own: Sequence[Object]
    planes: frozenset[str]
    resolve: Resolve
    enforced: bool = True

    @property
    def stage(self) -> str:
        """Name of the place."""
        return f"network policies, {self.direction}"

    def judge(self, way: Connection) -> Decision | None:
        """Return what the policies say, None where the pod is one that they cannot select."""
        outgoing = self.direction == "egress"
        subject, other = (way.source, way.destination) if outgoing else (way.destination, way.source)
        address = way.address if outgoing else way.source_address
        if not subject.has_own_network or address is None:
            return None
        if other.name == subject.name and other.namespace == subject.namespace:
            return Decision(True, "a pod always reaches itself")
        peer = Peer(
            other,
            address,
            own_node=other.host_network and other.node == subject.node,
            plane=other.host_network and other.node in self.planes,
            resolve=self.resolve,
        )
        rules = list(self._rules(subject))
        unsure: list[str] = []
        for rule in rules:
            if rule.denies:
                match = holds(rule, self.direction, peer, way)
                if match.holds:
                    return Decision(False, f"{rule.name} denies it")
                if match.holds is None:
                    unsure.append(f"{rule.name} may deny it: {match.why}")
        said = self._allowed(rules, peer, way, subject)
        if unsure and (said.allowed or said.undecided):
            return Decision(False, "; ".join(unsure), undecided=True)
        return said

    def _allowed(self, rules: Sequence[Rule], peer: Peer, way: Connection, subject: Endpoint) -> Decision:
        """Return what is said by everything that does not deny."""
        objects = NetworkPolicies(self.direction, self.policies, blocks_hold_cluster=False).opening(way)
        if objects.rule:
            return Decision(True, objects.rule)
        matches = [(rule.name, holds(rule, self.direction, peer, way)) for rule in rules if not rule.denies]
        for name, match in matches:
            if match.holds:
                return Decision(True, name)
        if self.direction == "ingress" and peer.own_node:
            return Decision(True, f"a pod's own node ({subject.node}) always reaches it")
        closing = list(
            dict.fromkeys(
                rule.name.rpartition(",")[0] for rule in rules if rule.closes and rule.selects.holds
            )
        )
        closing = [*objects.selecting, *closing]
        unsure = [
            f"{rule.name.rpartition(',')[0]} may close it: {rule.selects.why}"
            for rule in rules
            if rule.closes and not rule.selects.holds
        ]
        if not closing and unsure:
            return Decision(False, "; ".join(dict.fromkeys(unsure)), undecided=True)
        if not closing:
            return Decision(True, f"no policy closes {subject.name} for {self.direction}")
        unsure = [f"{name} may open it: {match.why}" for name, match in matches if match.holds is None]
        if unsure:
            return Decision(False, "; ".join(unsure), undecided=True)
        why = f"{', '.join(closing)}: no rule opens it"
        return Decision(False, f"{why}; {', '.join(objects.near)}: all but the port" if objects.near else why)

    def _rules(self, subject: Endpoint) -> Iterator[Rule]:
        labels = peers.pod_labels(subject)
        for policy in self.own:
            metadata = policy["metadata"]
            namespace = metadata.get("namespace", "")
            if namespace and namespace != subject.namespace:
                continue
            kind = "CiliumNetworkPolicy" if namespace else "CiliumClusterwideNetworkPolicy"
            name = f"{kind} {namespace}{'/' if namespace else ''}{metadata['name']}"
            for spec in (*filter(None, [policy.get("spec")]), *(policy.get("specs") or ())):
                # One with nodeSelector is about nodes.
                selector = spec.get("endpointSelector")
                selects = NO if selector is None else self._selects(selector, namespace, labels)
                if selects.holds is not False:
                    yield from self._rules_of(spec, name, namespace, selects)

    def _selects(self, selector: Object, namespace: str, labels: dict[str, str]) -> Match:
        if namespace:
            # Whatever it says about a namespace, it is about its own one.
            selector = {
                **selector,
                "matchLabels": {
                    key: value
                    for key, value in (selector.get("matchLabels") or {}).items()
                    if key.rpartition(":")[2] != peers.NAMESPACE
                },
            }
        return peers.selected(selector, labels)

    def _rules_of(self, spec: Object, name: str, namespace: str, selects: Match) -> Iterator[Rule]:
        chosen = (spec.get("enableDefaultDeny") or {}).get(self.direction)
        for section, denies in ((self.direction, False), (f"{self.direction}Deny", True)):
            for number, body in enumerate(spec.get(section) or ()):
                title = f"{name}, {section}[{number}]"
                yield Rule(title, namespace, denies, chosen is not False, body, selects)


def holds(rule: Rule, direction: Direction, peer: Peer, way: Connection) -> Match:
    """Return whether a rule holds a connection.

    Args:
        rule: the rule.
        direction: of its section.
        peer: the other end.
        way: the connection.
    """
    return peers.both([_peer(rule, _PREFIX[direction], peer), _ports(rule, way), rule.selects])


def _peer(rule: Rule, prefix: str, peer: Peer) -> Match:
    body = rule.body
    listed = {
        f"{prefix}Endpoints": lambda one: peers.selected(peers.scoped(one, rule.namespace), peer.labels()),
        f"{prefix}Entities": lambda one: peers.entity(one, peer),
        f"{prefix}CIDR": lambda one: peers.block(one, peer),
        f"{prefix}CIDRSet": lambda one: peers.block(one, peer),
        f"{prefix}Nodes": lambda one: _nodes(peer),
        "toFQDNs": lambda one: peers.name(one, peer),
        "toServices": lambda one: NO if peer.endpoint.host_network else Match(None, "toServices is not read"),
        f"{prefix}Groups": lambda one: (
            Match(None, "groups of another provider are not read") if peer.outside else NO
        ),
    }
    unknown = [key for key in body if key not in listed and key not in _OTHERS]
    if unknown:
        return Match(None, f"{unknown[0]} is not known here")
    # Lists of these that are empty hold nobody; of the others they count as if they were not there.
    if any(
        body.get(f"{prefix}{kind}") == [] for kind in ("Endpoints", "Nodes", "Entities", "CIDR", "CIDRSet")
    ):
        return NO
    given = [key for key in listed if body.get(key)]
    if not given:
        # Ports alone are those of everybody; nothing at all opens nothing.
        return YES if body.get("toPorts") else NO
    return peers.either(listed[key](one) for key in given for one in body[key])


def _nodes(peer: Peer) -> Match:
    remote = peer.endpoint.host_network and not peer.own_node
    return Match(None, "labels of nodes are not read") if remote else NO


def _ports(rule: Rule, way: Connection) -> Match:
    body = rule.body
    if body.get("icmps"):
        return NO
    required = (body.get("authentication") or {}).get("mode") not in (None, "disabled")
    asked = Match(None, "it asks for authentication") if required else YES
    if not body.get("toPorts"):
        return asked
    return peers.both([asked, peers.either(_port_rule(each, way) for each in body["toPorts"])])


def _port_rule(listed: Object, way: Connection) -> Match:
    there = peers.either(peers.port(each, way) for each in listed.get("ports") or ())
    more = [key for key in _L7 if listed.get(key)]
    if not more or there.holds is False:
        return there
    kinds = ", ".join(listed["rules"]) if more == ["rules"] else ", ".join(more)
    return Match(None, f"it judges what is in the packets too ({kinds})")
