# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Whether a part of a rule of Cilium's holds a connection: yes, no, or not to be known from data.

Cilium knows pods and nodes by labels and everything else by its address. What is written here follows
pkg/policy, pkg/k8s/apis/cilium.io/utils and pkg/labelsfilter of Cilium 1.20.1's module.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
import typing as t
from collections.abc import Callable, Iterable, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.endpoints import (
    Address,
    Connection,
    Endpoint,
)

Object = Mapping[str, t.Any]
Resolve = Callable[[str], list[Address]]
NAMESPACE = "io.kubernetes.pod.namespace"
NAMESPACE_LABELS = "io.cilium.k8s.namespace.labels"
CLUSTER, ACCOUNT = "io.cilium.k8s.policy.cluster", "io.cilium.k8s.policy.serviceaccount"
CLUSTER_NAME = "default"
"""The chart's ``cluster.name``; nothing here sets another one."""
_KEPT = re.compile(r"app\.kubernetes\.io")
_LEFT_OUT = re.compile(
    r"io\.kubernetes|kubernetes\.io|statefulset\.kubernetes\.io/pod-name|apps\.kubernetes\.io/pod-index"
    r"|batch\.kubernetes\.io/(job-completion-index|controller-uid)|.*beta\.kubernetes\.io|k8s\.io"
    r"|pod-template-(generation|hash)|controller-revision-hash|controller-uid|annotation|etcd_node"
    r"|topology\.kubernetes\.io"
)
"""Labels of pods that are no part of what Cilium knows a pod by."""
_CHARACTER = "[-a-z0-9_]"


class Match(t.NamedTuple):
    """Whether something holds a connection; ``holds`` is None where only more than data could tell.

    Args:
        holds: whether it does.
        why: what would have to be known, where ``holds`` is None.
    """

    holds: bool | None
    why: str = ""


YES, NO = Match(True), Match(False)


def either(parts: Iterable[Match]) -> Match:
    """Return whether one of them holds."""
    found = NO
    for each in parts:
        if each.holds:
            return each
        if each.holds is None and found.holds is not None:
            found = each
    return found


def both(parts: Iterable[Match]) -> Match:
    """Return whether all of them hold."""
    found = YES
    for each in parts:
        if each.holds is False:
            return NO
        if each.holds is None and found.holds is not None:
            found = each
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end, as the agent of the judged pod's node knows it.

    Args:
        endpoint: who it is.
        address: what it sends from, or is sent to.
        own_node: whether it is the node that the judged pod runs on.
        plane: whether it is a node with an API server.
        resolve: finds the addresses of a name outside; raises OSError.
    """

    endpoint: Endpoint
    address: Address
    own_node: bool
    plane: bool
    resolve: Resolve

    @property
    def outside(self) -> bool:
        """Tell whether it is neither a pod nor a node."""
        return not self.endpoint.namespace and not self.endpoint.host_network

    def labels(self) -> dict[str, str]:
        """Return the labels that it is known by, each with its source before a colon."""
        if self.endpoint.has_own_network:
            return pod_labels(self.endpoint)
        if self.outside:
            return {"reserved:world": ""}
        found = {"reserved:host" if self.own_node else "reserved:remote-node": ""}
        if self.plane:
            found["reserved:kube-apiserver"] = ""
        return found


def pod_labels(pod: Endpoint) -> dict[str, str]:
    """Return the labels that a pod is known by, each with its source before a colon."""
    own = {key: value for key, value in pod.labels.items() if _KEPT.match(key) or not _LEFT_OUT.match(key)}
    space = {f"{NAMESPACE_LABELS}.{key}": value for key, value in pod.namespace_labels.items()}
    known = {NAMESPACE: pod.namespace, CLUSTER: CLUSTER_NAME, ACCOUNT: pod.service_account or "default"}
    return {f"k8s:{key}": value for key, value in {**own, **space, **known}.items()}


def selected(selector: Object, labels: Mapping[str, str]) -> Match:
    """Return whether a selector of Cilium's holds labels; an empty one holds all."""
    wanted = [
        {"key": key, "operator": "In", "values": [value]}
        for key, value in (selector.get("matchLabels") or {}).items()
    ]
    return both(_expression(each, labels) for each in [*wanted, *(selector.get("matchExpressions") or ())])


def _expression(expression: Object, labels: Mapping[str, str]) -> Match:
    source, name = _split(expression["key"])
    if source not in ("any", "k8s", "reserved"):
        return Match(None, f"labels of {source} are known to the agents alone")
    sources = ("k8s", "reserved") if source == "any" else (source,)
    values = [labels[f"{each}:{name}"] for each in sources if f"{each}:{name}" in labels]
    listed = any(value in (expression.get("values") or ()) for value in values)
    verdicts = {"In": listed, "NotIn": not listed, "Exists": bool(values), "DoesNotExist": not values}
    return Match(verdicts[expression["operator"]])


def _split(key: str) -> tuple[str, str]:
    source, colon, name = key.partition(":")
    return (source, name) if colon else ("any", key)


def scoped(selector: Object, namespace: str) -> Object:
    """Return a peer's selector with what Cilium adds: the policy's namespace, or that it is a pod at all.

    Args:
        selector: as it was written.
        namespace: of the policy, empty for one of the whole cluster.
    """
    keys = [
        _split(key)
        for key in (
            *(selector.get("matchLabels") or {}),
            *(each["key"] for each in selector.get("matchExpressions") or ()),
        )
    ]
    if any(source == "reserved" for source, _name in keys):
        return selector
    named = [name for source, name in keys if source in ("any", "k8s")]
    more: list[Object] = []
    if NAMESPACE not in named:
        if not namespace:
            more.append({"key": f"k8s:{NAMESPACE}", "operator": "Exists"})
        elif not any(name.startswith(NAMESPACE_LABELS) for name in named):
            more.append({"key": f"k8s:{NAMESPACE}", "operator": "In", "values": [namespace]})
    if CLUSTER not in named:
        more.append({"key": f"k8s:{CLUSTER}", "operator": "In", "values": [CLUSTER_NAME]})
    return {**selector, "matchExpressions": [*(selector.get("matchExpressions") or ()), *more]}


def entity(name: str, peer: Peer) -> Match:
    """Return whether a peer belongs to one of Cilium's entities."""
    if name == "all":
        return YES
    if name in ("world-ipv4", "world-ipv6") and peer.outside:
        return Match(None, f"whether agents know {name} depends on their address families")
    if name in ("cluster", "cluster-mesh"):
        return Match(not peer.outside)
    return Match(f"reserved:{name}" in peer.labels())


def block(listed: Object | str, peer: Peer) -> Match:
    """Return whether a network holds a peer: only what is outside of the cluster is known by its address."""
    if not peer.outside:
        return NO
    entry: Object = {"cidr": listed} if isinstance(listed, str) else listed
    if not entry.get("cidr"):
        return Match(None, "groups of networks (CiliumCIDRGroup) are not looked up")
    return Match(
        _inside(peer.address, entry["cidr"])
        and not any(_inside(peer.address, hole) for hole in entry.get("except") or ())
    )


def _inside(address: Address, network: str) -> bool:
    return address in ipaddress.ip_network(network, strict=False)


def name(listed: Object, peer: Peer) -> Match:
    """Return whether a name of ``toFQDNs`` stands for a peer: for the name asked for, or for its address."""
    if not peer.outside:
        return NO
    exact, pattern = listed.get("matchName") or "", listed.get("matchPattern") or ""
    asked = peer.endpoint.name if not _is_address(peer.endpoint.name) else ""
    if asked and name_pattern(exact or pattern).fullmatch(_full(asked)):
        return YES
    if not exact:
        # A question about a name is not about what else may live at its address.
        return NO if asked else Match(None, f"which addresses names like {pattern} have is not known here")
    try:
        return Match(peer.address in peer.resolve(exact.rstrip(".")))
    except OSError:
        return Match(None, f"this machine finds no address of {exact}")


def name_pattern(text: str) -> re.Pattern[str]:
    """Return what a ``matchName`` or ``matchPattern`` holds, for names that end with a dot."""
    if re.fullmatch(r"\*+\.?", text):
        return re.compile(rf"({_CHARACTER}+[.])+|[.]")
    dotted = _full(text)
    wide = re.match(r"\*{2,}\.", dotted)
    rest = dotted[wide.end() :] if wide else dotted
    parts = [re.escape(part) for part in re.split(r"\*+", rest)]
    return re.compile((rf"({_CHARACTER}+[.])+" if wide else "") + f"{_CHARACTER}*".join(parts))


def _full(text: str) -> str:
    return text.strip().lower().rstrip(".") + "."


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def port(listed: Object, way: Connection) -> Match:
    """Return whether an entry of ``ports`` holds a connection."""
    protocol = listed.get("protocol") or "ANY"
    if protocol not in ("ANY", way.protocol):
        return NO
    text = str(listed.get("port") or "0")
    if not text.isdecimal():
        there = (text.lower(), way.protocol, way.port)
        return Match(any((each.name, each.protocol, each.number) == there for each in way.destination.ports))
    first = int(text)
    return Match(first == 0 or first <= way.port <= (listed.get("endPort") or first))
