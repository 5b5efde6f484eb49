# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What people write for the two ends of a connection."""

from __future__ import annotations

import ipaddress
import re
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import ActionableError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.endpoints import PROTOCOLS, Address

_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_POD = re.compile(rf"(?P<namespace>{_LABEL})/(?P<name>[a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?)")
_NAME = re.compile(rf"(?=.{{1,253}}$)({_LABEL}\.)+{_LABEL}")
_PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?")
_MOST_PORT = 65_535


class QuestionError(ActionableError):
    """What was asked makes no sense; both parts are sentences."""


class Pod(t.NamedTuple):
    """A pod, by its name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return it as people write it."""
        return f"{self.namespace}/{self.name}"


class Service(t.NamedTuple):
    """A service, by its name."""

    namespace: str
    name: str


class Name(t.NamedTuple):
    """A DNS name outside the cluster, in lower case."""

    text: str


class Target(t.NamedTuple):
    """Where a connection is to go.

    Args:
        what: who is meant.
        protocol: ``TCP``, ``UDP`` or ``SCTP``.
        port: a number, or the name of a port.
    """

    what: Pod | Service | Name | Address
    protocol: str
    port: int | str


def pod_of(text: str) -> Pod:
    """Read NAMESPACE/POD.

    Raises:
        QuestionError: it is something else.
    """
    found = _POD.fullmatch(text)
    if not found:
        raise QuestionError(f"{text!r} is no pod.", "Write NAMESPACE/POD, such as team-a/web-0.")
    return Pod(found["namespace"], found["name"])


def target_of(text: str, cluster_domain: str) -> Target:
    """Read NAMESPACE/POD:PORT, ADDRESS:PORT or NAME:PORT, each with /udp or /sctp behind it if it is not TCP.

    Args:
        text: what was written. IPv6 addresses stand in brackets; SERVICE.NAMESPACE.svc is a service.
        cluster_domain: the domain of the cluster's names.

    Raises:
        QuestionError: it is something else.
    """
    what, colon, rest = text.rpartition(":")
    port, _, protocol = rest.partition("/")
    protocol = protocol.upper() or "TCP"
    if not colon or not what or protocol not in PROTOCOLS:
        raise QuestionError(
            f"{text!r} is no place that a connection can go to.",
            "Write NAMESPACE/POD:PORT, ADDRESS:PORT or NAME:PORT; /udp or /sctp may stand behind it.",
        )
    return Target(_whom(what, cluster_domain), protocol, _port(port))


def _port(text: str) -> int | str:
    if (
        text.isascii()
        and text.isdecimal()
        and len(text) <= len(str(_MOST_PORT))
        and 1 <= int(text) <= _MOST_PORT
    ):
        return int(text)
    if _PORT_NAME.fullmatch(text):
        return text
    raise QuestionError(
        f"{text!r} is no port.", f"Write 1 to {_MOST_PORT}, or the name of a container's port."
    )


def _whom(text: str, cluster_domain: str) -> Pod | Service | Name | Address:
    if "/" in text:
        return pod_of(text)
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        pass
    else:
        if address.is_loopback or address.is_unspecified or address.is_multicast:
            raise QuestionError(f"{address} is no address of anybody else.", "Write the pod or its address.")
        return address
    name = text.lower().removesuffix(".")
    if not _NAME.fullmatch(name):
        raise QuestionError(
            f"{text!r} is no address and no DNS name.", "Write for example pypi.example.com:443."
        )
    parts = name.removesuffix(f".{cluster_domain}").split(".")
    if len(parts) == len(("name", "namespace", "svc")) and parts[2] == "svc":
        return Service(parts[1], parts[0])
    if name.endswith(f".{cluster_domain}"):
        raise QuestionError(
            f"{text} is a name of the cluster, but no service's.",
            f"Write SERVICE.NAMESPACE.svc.{cluster_domain}.",
        )
    return Name(name)
