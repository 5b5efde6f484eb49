# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What NetworkPolicy objects (networking.k8s.io/v1) say about a connection.

The rules are those of the API's own reference: policies only add; a pod that no policy of a direction selects
is open in it; a pod with its node's network is selected by none; what comes from a pod's own node, and from
itself, always passes. The API server has filled in defaults and refused what makes no sense.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import typing as t
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.endpoints import (
    Address,
    Connection,
    Decision,
    Endpoint,
)

Object = Mapping[str, t.Any]
Direction = t.Literal["ingress", "egress"]
_PEERS: Mapping[Direction, str] = {"ingress": "from", "egress": "to"}


class Opening(t.NamedTuple):
    """What policies have for a connection.

    Args:
        selecting: those that select the judged pod, by name.
        rule: the first rule that opens the connection, empty when none does.
        near: rules that would, but for the port.
    """

    selecting: tuple[str, ...]
    rule: str
    near: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class NetworkPolicies:
    """The policies of one direction.

    Args:
        direction: ``egress`` judges what the source sends, ``ingress`` what the destination takes.
        policies: objects, of the judged pod's namespace at least.
        enforced: whether the site has anything that enforces them.
        blocks_hold_cluster: whether an ``ipBlock`` means pods and nodes too. The API leaves it open;
            for Cilium they are known by their labels only (its documentation, "CIDR based").
    """

    direction: Direction
    policies: Sequence[Object]
    enforced: bool = True
    blocks_hold_cluster: bool = True

    @property
    def stage(self) -> str:
        """Name of the place."""
        return f"network policies, {self.direction}"

    def judge(self, way: Connection) -> Decision | None:
        """Return what the policies say, None where the pod is one that they cannot select."""
        subject, peer = self._ends(way)
        if not subject.has_own_network:
            return None
        if peer.name == subject.name and peer.namespace == subject.namespace:
            return Decision(True, "a pod always reaches itself")
        if peer.host_network and peer.node == subject.node:
            return Decision(True, f"a pod and its own node ({subject.node}) always reach each other")
        found = self.opening(way)
        if not found.selecting:
            return Decision(
                True, f"no policy of {subject.namespace} selects {subject.name} for {self.direction}"
            )
        if found.rule:
            return Decision(True, found.rule)
        why = f"{', '.join(found.selecting)}: no rule opens it"
        return Decision(False, f"{why}; {', '.join(found.near)}: all but the port" if found.near else why)

    def opening(self, way: Connection) -> Opening:
        """Return the policies that select the judged pod, and what their rules do for a connection."""
        subject, peer = self._ends(way)
        address = way.address if self.direction == "egress" else way.source_address
        if not self.blocks_hold_cluster and (peer.namespace or peer.host_network):
            address = None
        selecting = [policy for policy in self.policies if self._selects(policy, subject)]
        names = tuple(map(_name, selecting))
        near: list[str] = []
        for policy in selecting:
            for number, rule in enumerate(policy["spec"].get(self.direction) or ()):
                name = f"{_name(policy)}, {self.direction}[{number}]"
                if not _holds_peer(rule.get(_PEERS[self.direction]), policy, peer, address):
                    continue
                if _holds_port(rule.get("ports"), way):
                    return Opening(names, name, ())
                near.append(name)
        return Opening(names, "", tuple(near))

    def _ends(self, way: Connection) -> tuple[Endpoint, Endpoint]:
        """Return the judged pod, and who is at the other end."""
        both = (way.source, way.destination)
        return both if self.direction == "egress" else both[::-1]

    def _selects(self, policy: Object, pod: Endpoint) -> bool:
        spec = policy["spec"]
        # Without types a policy is about what comes in, and about what goes out if it has rules for that.
        types = spec.get("policyTypes") or ["Ingress", *(["Egress"] if spec.get("egress") else [])]
        return (
            policy["metadata"]["namespace"] == pod.namespace
            and self.direction.capitalize() in types
            and matches(spec.get("podSelector") or {}, pod.labels)
        )


def matches(selector: Object, labels: Mapping[str, str]) -> bool:
    """Tell whether a LabelSelector holds labels; an empty one holds all."""
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(_holds(each, labels) for each in selector.get("matchExpressions") or ())


def _holds(expression: Object, labels: Mapping[str, str]) -> bool:
    there = expression["key"] in labels
    listed = there and labels[expression["key"]] in (expression.get("values") or ())
    verdicts = {"In": listed, "NotIn": not listed, "Exists": there, "DoesNotExist": not there}
    return verdicts[expression["operator"]]


def _name(policy: Object) -> str:
    return f"NetworkPolicy {policy['metadata']['namespace']}/{policy['metadata']['name']}"


def _holds_peer(
    peers: Iterable[Object] | None, policy: Object, peer: Endpoint, address: Address | None
) -> bool:
    return not peers or any(_is_peer(each, policy, peer, address) for each in peers)


def _is_peer(listed: Object, policy: Object, peer: Endpoint, address: Address | None) -> bool:
    block = listed.get("ipBlock")
    if block:
        return address is not None and _in_block(block, address)
    if not peer.has_own_network:
        return False
    namespaces, pods = listed.get("namespaceSelector"), listed.get("podSelector")
    same = peer.namespace == policy["metadata"]["namespace"]
    return (same if namespaces is None else matches(namespaces, peer.namespace_labels)) and (
        pods is None or matches(pods, peer.labels)
    )


def _in_block(block: Object, address: Address) -> bool:
    return address in ipaddress.ip_network(block["cidr"], strict=False) and not any(
        address in ipaddress.ip_network(hole, strict=False) for hole in block.get("except") or ()
    )


def _holds_port(ports: Iterable[Object] | None, way: Connection) -> bool:
    return not ports or any(_is_port(each, way) for each in ports)


def _is_port(listed: Object, way: Connection) -> bool:
    if (listed.get("protocol") or "TCP") != way.protocol:
        return False
    first = listed.get("port")
    if first is None:
        return True
    if isinstance(first, str):
        # A name means the port that the destination's own containers call so.
        return any(
            (port.name, port.protocol, port.number) == (first, way.protocol, way.port)
            for port in way.destination.ports
        )
    return bool(first <= way.port <= listed.get("endPort", first))
