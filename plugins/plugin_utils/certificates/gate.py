# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""May an authority go to its next stage? Only if every host was seen to have followed the stage before.

Judged by what hosts answered just now, not by what was once applied: files, and whether the programs that
read a file only when they start were started after it was written.
"""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Collection, Iterator, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.certificates.found import AUTHORITY, LEAF, Found
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.generations import (
    BACK,
    DROP,
    ISSUE,
    SERVICE_ACCOUNT,
    TRUST,
    Generations,
)

CLOCK_TOLERANCE_S = 2.0
"""The boot time that starts are counted from is in whole seconds."""
END = "end"
"""Not a stage: that the last one, ``drop``, was followed by all hosts."""
SERVED: Mapping[str, str] = {"etcd": "what etcd shows", "kubernetes": "what the API server shows"}
"""Stand for a file: the certificate that a server was seen to show."""
NODE = ("control_plane", "nodes")
CONTROL_PLANE = ("control_plane",)


class Place(t.NamedTuple):
    """A file that hosts of some groups must have, and the programs that read it only when they start."""

    path: str
    groups: tuple[str, ...]
    readers: tuple[str, ...] = ()


_CA = "/etc/kubernetes/pki/ca.crt"
TRUSTING: Mapping[str, tuple[Place, ...]] = {
    "etcd": (
        Place("/etc/etcd/pki/ca.crt", ("etcd",), ("etcd",)),
        Place("/etc/kubernetes/pki/etcd/ca.crt", CONTROL_PLANE, ("kube-apiserver",)),
    ),
    "kubernetes": (
        Place(_CA, NODE, ("kubelet",)),
        Place(_CA, CONTROL_PLANE, ("kube-apiserver", "kube-controller-manager")),
        Place("/etc/kubernetes/kubelet.conf", NODE, ("kubelet",)),
        Place("/etc/kubernetes/admin.conf", CONTROL_PLANE),
        Place("/etc/kubernetes/controller-manager.conf", CONTROL_PLANE, ("kube-controller-manager",)),
        Place("/etc/kubernetes/scheduler.conf", CONTROL_PLANE, ("kube-scheduler",)),
        Place("/etc/haproxy/kubernetes-ca.crt", ("haproxy",)),
    ),
    "front-proxy": (Place("/etc/kubernetes/pki/front-proxy-ca.crt", CONTROL_PLANE, ("kube-apiserver",)),),
}
LEAVES: Mapping[str, tuple[Place, ...]] = {
    # Members and API servers read these again by themselves.
    "etcd": (
        Place("/etc/etcd/pki/server.crt", ("etcd",)),
        Place(SERVED["etcd"], ("etcd",)),
        Place("/etc/kubernetes/pki/apiserver-etcd-client.crt", CONTROL_PLANE),
    ),
    "kubernetes": (
        Place("/etc/kubernetes/pki/apiserver.crt", CONTROL_PLANE),
        Place(SERVED["kubernetes"], CONTROL_PLANE),
        Place("/etc/kubernetes/pki/apiserver-kubelet-client.crt", CONTROL_PLANE),
        Place("/etc/kubernetes/admin.conf", CONTROL_PLANE),
        Place("/etc/kubernetes/controller-manager.conf", CONTROL_PLANE, ("kube-controller-manager",)),
        Place("/etc/kubernetes/scheduler.conf", CONTROL_PLANE, ("kube-scheduler",)),
        Place("/var/lib/kubelet/pki/kubelet-client-current.pem", NODE),
        Place("/var/lib/kubelet/pki/kubelet-server-current.pem", NODE),
    ),
    "front-proxy": (Place("/etc/kubernetes/pki/front-proxy-client.crt", CONTROL_PLANE),),
}
_KEY_READERS = ("kube-apiserver", "kube-controller-manager")


@dataclasses.dataclass(frozen=True, slots=True)
class Observed:
    """What one host answered.

    Args:
        groups: groups of the inventory that it is in.
        found: its certificates.
        written: when each file was written.
        started: when each program was started.
        public_keys: text of its file of service account keys.
    """

    groups: Collection[str]
    found: Sequence[Found]
    written: Mapping[str, float]
    started: Mapping[str, float]
    public_keys: str = ""


def refusals(
    name: str,
    move: str,
    state: Generations,
    hosts: Mapping[str, Observed | None],
    public_keys: str = "",
) -> list[str]:
    """Say what forbids a move.

    Args:
        name: the authority, or ``service-account``.
        move: ``trust``, ``issue``, ``drop``, ``back`` or ``END``.
        state: where the store stands before the move.
        hosts: what each host of the inventory answered, None for one that did not.
        public_keys: the keys of service accounts as the store has them now.

    Returns:
        One sentence a reason, empty when the move is safe.
    """
    return [
        f"{host}: {reason}"
        for host, observed in hosts.items()
        for reason in _reasons(name, move, state, observed, public_keys)
    ]


def _reasons(
    name: str, move: str, state: Generations, observed: Observed | None, public_keys: str
) -> Iterator[str]:
    if move == TRUST:
        return
    if observed is None:
        yield "it did not answer, so nobody knows what it trusts"
        return
    if name == SERVICE_ACCOUNT:
        yield from _keys(observed, public_keys)
        return
    if move == ISSUE:
        yield from _trust(name, set(state.trusted), observed)
    elif move == BACK and state.stage == ISSUE:
        # Who signs has changed the order of certificates in files since; nobody has to start again for that.
        yield from _trust(name, set(state.trusted), observed, started=False)
    elif move in (DROP, BACK):
        yield from _trust(name, {state.signing}, observed, started=False)
        yield from _signed(name, state.signing, observed)
    else:
        yield from _trust(name, set(state.trusted), observed, exactly=True)
        yield from _signed(name, state.signing, observed)


def _trust(
    name: str, wanted: set[int], observed: Observed, *, exactly: bool = False, started: bool = True
) -> Iterator[str]:
    for place in _places(TRUSTING[name], observed):
        there = {
            found.generation
            for found in observed.found
            if found.kind == AUTHORITY and found.path == place.path and found.authority == name
        }
        missing, more = sorted(wanted - there), sorted(there - wanted)
        if missing:
            yield f"{place.path} does not trust generation {', '.join(map(str, missing))} of {name}"
        elif exactly and more:
            yield f"{place.path} still trusts generation {', '.join(map(str, more))} of {name}"
        elif started:
            yield from _stale(place, observed)


def _signed(name: str, signing: int, observed: Observed) -> Iterator[str]:
    for place in _places(LEAVES[name], observed):
        leaves = [found for found in observed.found if found.kind == LEAF and found.path == place.path]
        if not leaves:
            yield f"{place.path} holds no certificate"
        for leaf in leaves:
            if leaf.generation != signing:
                yield f"{place.path} is not signed by generation {signing} of {name}"
        yield from _stale(place, observed)


def _keys(observed: Observed, public_keys: str) -> Iterator[str]:
    for path in ("/etc/kubernetes/pki/sa.pub", "/etc/kubernetes/pki/sa.key"):
        for place in _places((Place(path, CONTROL_PLANE, _KEY_READERS),), observed):
            if path.endswith(".pub") and observed.public_keys != public_keys:
                yield f"{path} does not hold the keys that the store has"
            yield from _stale(place, observed)


def _stale(place: Place, observed: Observed) -> Iterator[str]:
    written = observed.written.get(place.path)
    for reader in place.readers:
        start = observed.started.get(reader)
        if start is None:
            yield f"{reader} does not run"
        elif written is not None and start + CLOCK_TOLERANCE_S < written:
            yield f"{reader} was started before {place.path} was written"


def _places(places: Sequence[Place], observed: Observed) -> Iterator[Place]:
    return (place for place in places if any(group in observed.groups for group in place.groups))
