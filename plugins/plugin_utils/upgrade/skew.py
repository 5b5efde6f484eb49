# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which versions may follow each other, and which may run beside each other. Pure arithmetic.

Sources: Kubernetes documentation, "Version Skew Policy"; kubeadm's constants (``MinExternalEtcdVersion``,
``MinimumControlPlaneVersion``, cmd/kubeadm/app/constants of 1.36.4 and 1.37.1); etcd documentation,
"Upgrade etcd from v3.5 to v3.6", "... from v3.6 to v3.7" and "Downgrade etcd from v3.7 to v3.6".
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterable, Mapping

OLDEST_KUBELET = 3
"""How many minor versions a kubelet may be older than the API server; it is never newer."""
LEAST_ETCD_BEFORE: dict[tuple[int, int], tuple[int, int, int]] = {
    # Earlier 3.5 can start 3.6 with members that were removed long ago.
    (3, 6): (3, 5, 26),
    (3, 7): (3, 6, 11),
}
"""What all members must run, at least, before one of them is started with a minor version of etcd."""
LEAST_ETCD_FOR_KUBERNETES: dict[tuple[int, int], tuple[int, int, int]] = {
    (1, 36): (3, 5, 24),
    (1, 37): (3, 5, 24),
}
"""kubeadm refuses an external etcd that is older."""
LEAST_CONTAINERD_FOR_KUBERNETES: dict[tuple[int, int], tuple[int, int, int]] = {
    (1, 36): (2, 0, 0),
    (1, 37): (2, 0, 0),
}
"""Kubernetes 1.35 was the last with containerd 1.x (Kubernetes 1.35 release announcement)."""

_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(?:[-+].*)?")


class Version(t.NamedTuple):
    """Three numbers."""

    major: int
    minor: int
    patch: int

    @property
    def line(self) -> tuple[int, int]:
        """The minor version with its major one."""
        return self.major, self.minor

    def __str__(self) -> str:
        """Return it as it is written in an inventory."""
        return f"{self.major}.{self.minor}.{self.patch}"


def parse(text: str) -> Version:
    """Read a version, with or without a "v" before it or a suffix behind it.

    Raises:
        ValueError: it is none.
    """
    match = _VERSION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no version like 1.36.4")
    return Version(int(match[1]), int(match[2]), int(match[3]))


def one_minor(what: str, current: Version, wanted: Version) -> str:
    """Say why a component cannot go from one version to the other at once, "" when it can.

    Args:
        what: the component, for the message.
        current: what runs.
        wanted: what shall run.
    """
    if wanted < current:
        return f"{what} {current} would become the older {wanted}: going back is not supported"
    if wanted.major != current.major or wanted.minor - current.minor > 1:
        between = f"{current.major}.{current.minor + 1}"
        way = f"go to {between} first, one minor version at a time"
        return f"{what} {current} cannot become {wanted} at once: {way}"
    return ""


def kubelet_problem(kubelet: Version, server: Version) -> str:
    """Say why a kubelet does not go with an API server, "" when it does."""
    if kubelet.line > server.line or kubelet.major != server.major:
        return f"a kubelet {kubelet} is newer than the API server {server}"
    behind = server.minor - kubelet.minor
    if behind > OLDEST_KUBELET:
        allowed = f"{OLDEST_KUBELET} are allowed"
        return f"a kubelet {kubelet} is {behind} minor versions older than {server}; {allowed}"
    return ""


def kubelet_arithmetic(kubelet: Version, server: Version) -> str:
    """Return the skew in numbers, for people to check."""
    behind = server.minor - kubelet.minor
    return f"kubelet {kubelet} is {behind} minor behind API server {server}, {OLDEST_KUBELET} allowed"


def kubernetes_problems(
    servers: Mapping[str, Version], kubelets: Mapping[str, Version], wanted: Version
) -> list[str]:
    """Say why the control planes cannot go to a version now.

    Args:
        servers: control plane -> version of its API server.
        kubelets: node -> version of its kubelet, control planes included.
        wanted: what the control planes shall run.
    """
    problems = []
    for name, server in servers.items():
        problem = one_minor("Kubernetes", server, wanted)
        if problem:
            problems.append(f"{name}: {problem}")
    lines = {server.line for server in servers.values()}
    if lines and max(lines)[1] - min(lines)[1] > 1:
        problems.append(f"the API servers are {_listed(servers)}: more than one minor version apart")
    for name, kubelet in kubelets.items():
        problem = kubelet_problem(kubelet, wanted)
        # A kubelet that is newer than what it shall follow is no obstacle to the API server, but a mistake.
        if problem:
            problems.append(f"{name}: {problem}")
    return problems


def etcd_problems(members: Mapping[str, Version], cluster: Version | None, wanted: Version) -> list[str]:
    """Say why the etcd members cannot go to a version now.

    Going back by one minor version is possible as long as the cluster's version, which is that of its oldest
    member, is the older one: in the middle of an upgrade, or after ``etcdctl downgrade enable``.

    Args:
        members: member -> version of its server.
        cluster: the version that the members have agreed on; None if nobody said.
        wanted: what they shall run.
    """
    problems = []
    least = LEAST_ETCD_BEFORE.get(wanted.line)
    oldest, newest = min(members.values(), default=wanted), max(members.values(), default=wanted)
    for name, current in members.items():
        if wanted.line < current.line:
            agreed = cluster is not None and cluster.line <= wanted.line
            agreed = agreed and (current.major, current.minor - 1) == wanted.line
            if not agreed:
                problems.append(
                    f"{name}: etcd {current} would become {wanted}, but the cluster's version is "
                    f"{cluster or 'not known'}: its data have the newer form. Enable the downgrade first: "
                    f"etcdctl downgrade enable {wanted.major}.{wanted.minor}.0"
                )
        elif wanted.line > current.line:
            problem = one_minor("etcd", current, wanted)
            if problem:
                problems.append(f"{name}: {problem}")
            elif least and current < least:
                needed = ".".join(map(str, least))
                problems.append(
                    f"{name}: etcd {current} is too old to run beside {wanted}: bring every member to "
                    f"{needed} or later of its minor version first"
                )
    if newest.major != oldest.major or newest.minor - oldest.minor > 1:
        problems.append(f"the members run {_listed(members)}: more than one minor version apart")
    return problems


def etcd_for_kubernetes(etcd: Version, kubernetes: Version) -> str:
    """Say why an etcd does not go with a version of Kubernetes, "" when it does or nobody knows."""
    least = LEAST_ETCD_FOR_KUBERNETES.get(kubernetes.line)
    if least and etcd < least:
        return f"Kubernetes {kubernetes} needs etcd {'.'.join(map(str, least))} or later, not {etcd}"
    return ""


def containerd_for_kubernetes(containerd: Version, kubernetes: Version) -> str:
    """Say why a containerd does not go with a version of Kubernetes, "" when it does or nobody knows."""
    least = LEAST_CONTAINERD_FOR_KUBERNETES.get(kubernetes.line)
    if least and containerd < least:
        return (
            f"Kubernetes {kubernetes} needs containerd {'.'.join(map(str, least))} or later, not {containerd}"
        )
    return ""


def containerd_problem(current: Version, wanted: Version) -> str:
    """Say why containerd cannot go from one version to the other, "" when it can.

    Patch releases of one minor version read each other's data, so going back between them is possible.
    """
    return "" if current.line == wanted.line else one_minor("containerd", current, wanted)


def _listed(versions: Mapping[str, Version]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def oldest(versions: Iterable[Version]) -> Version | None:
    """Return the oldest of some versions, None of none."""
    return min(versions, default=None)
