# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Both ends of a connection, and what judges it."""

from __future__ import annotations

import dataclasses
import ipaddress
import typing as t
from collections.abc import Mapping

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
PROTOCOLS = ("TCP", "UDP", "SCTP")


class Port(t.NamedTuple):
    """A port of a container that has a name."""

    name: str
    protocol: str
    number: int


@dataclasses.dataclass(frozen=True, slots=True)
class Endpoint:
    """One end of a connection.

    Args:
        name: what people call it, such as ``team-a/web-1`` or ``203.0.113.7``.
        addresses: its addresses, one of a family at most.
        namespace: of a pod, empty for anything else.
        labels: of a pod.
        namespace_labels: of its namespace.
        node: the node that it runs on, or is.
        host_network: whether it has the network of its node, as nodes themselves have.
        ports: ports of a pod's containers that have names.
        service_account: of a pod.
    """

    name: str
    addresses: tuple[Address, ...]
    namespace: str = ""
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    namespace_labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    node: str = ""
    host_network: bool = False
    ports: tuple[Port, ...] = ()
    service_account: str = ""

    @property
    def has_own_network(self) -> bool:
        """Tell whether it is a pod that network policies can select."""
        return bool(self.namespace) and not self.host_network

    def address_like(self, other: Address) -> Address | None:
        """Return its address of the same family as another one, None when it has none."""
        return next((each for each in self.addresses if each.version == other.version), None)


@dataclasses.dataclass(frozen=True, slots=True)
class Connection:
    """What is judged: the first packet of a connection, after a service's address became a pod's.

    Args:
        source: who opens it.
        destination: who is meant.
        address: the address that the packet is sent to.
        protocol: ``TCP``, ``UDP`` or ``SCTP``.
        port: the port that it is sent to.
    """

    source: Endpoint
    destination: Endpoint
    address: Address
    protocol: str
    port: int

    @property
    def source_address(self) -> Address | None:
        """The address that the packet comes from, None where the source has none of this family."""
        return self.source.address_like(self.address)


class Decision(t.NamedTuple):
    """What one judge says of a connection.

    Args:
        allowed: whether it lets the connection pass.
        rule: what decided, in words.
        undecided: whether nothing of this is known; then ``allowed`` is False, and ``rule`` says why.
    """

    allowed: bool
    rule: str
    undecided: bool = False


class Judge(t.Protocol):
    """Decides about connections at one place on their way.

    Another kind of policy is another judge in the list that ``verdict.route_of`` gets.
    """

    @property
    def stage(self) -> str:
        """Name of the place."""
        ...

    @property
    def enforced(self) -> bool:
        """Whether anything does what this judge says."""
        ...

    def judge(self, way: Connection) -> Decision | None:
        """Return what becomes of a connection, None where it does not pass this place."""
        ...
