# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How a site's etcd members start, join and leave: what each of them is told, and what is refused.

A member without data may begin a cluster only when it is known of every host of the group that it has no data
either. Otherwise it joins the cluster that lives, or it waits: a second cluster beside living data would lose
them, and a member that is merely down has data too.
"""

from __future__ import annotations

import json
import socket
import typing as t
from collections.abc import Callable, Collection, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.etcd import (
    Member,
    ask_members,
    settled,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.members import (
    Listed,
    Membership,
    initial_cluster,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.quorum import (
    Quorum,
    QuorumError,
    insist,
    quorum,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Host

INPUT = "etcd-membership"
"""The one-time input of the resource kind ``etcd_member``."""


def peer_url(host: Host) -> str:
    """Return the URL that other members reach a host at."""
    return f"https://{host.address}:{host.variables['etcd_peer_port']}"


def one_time_input(state: str, cluster: str) -> dict[str, str]:
    """Return what a member without data is told: how to start, and with whom."""
    return {INPUT: json.dumps({"cluster": cluster, "state": state}, sort_keys=True)}


def first_start(
    hosts: Sequence[Host], compared: Collection[str], bare: Collection[str], joined: Sequence[str] = ()
) -> dict[str, dict[str, str]]:
    """Return what all members of a new cluster are told, nothing when one of them may have data.

    Args:
        hosts: the group etcd.
        compared: hosts that were looked at in this run.
        bare: those of them that have no data.
        joined: control planes that are part of a cluster.

    Raises:
        ClusterError: nobody has data, and yet there is a cluster.
    """
    if not all(host.name in compared and host.name in bare for host in hosts):
        return {}
    if joined:
        raise ClusterError(
            f"No host of the group etcd has data, but {', '.join(joined)} belongs to a cluster already.",
            "Its store is elsewhere or lost: correct the group etcd, or restore etcd from a backup; "
            "to start over with nothing, reset the whole site (playbooks/reset.yml).",
        )
    cluster = ",".join(f"{host.name}={peer_url(host)}" for host in hosts)
    return {host.name: one_time_input("new", cluster) for host in hosts}


def belongs_to(listed: Sequence[Listed], host: Host) -> Listed | None:
    """Return the entry with a host's name, or else with its address; None if the list has neither."""
    named = (member for member in listed if member.name == host.name)
    return next(named, next((member for member in listed if peer_url(host) in member.peer_urls), None))


class EtcdCluster:
    """The etcd members of one site.

    Args:
        session: the site's cluster.
        without: hosts of the group that are not asked.
    """

    def __init__(self, session: Session, without: Collection[str] = ()) -> None:
        self.hosts = [host for host in session.site.group("etcd") if host.name not in without]
        self._addresses = {host.name: host.address for host in self.hosts}
        self._port = int(self.hosts[0].variables["etcd_client_port"]) if self.hosts else 2379
        self._session = session
        self._context: t.Any = None

    def context(self) -> t.Any:
        """Return TLS to the members, made once."""
        if self._context is None:
            self._context = self._session.etcd_context()
        return self._context

    def answers(self) -> list[Member]:
        """Return what every member says of itself."""
        return ask_members(self._addresses, self.context(), self._port)

    def without_name(self, name: str) -> list[str]:
        """Return the members whose certificates do not have a DNS name, or that do not answer."""
        return [host.name for host in self.hosts if name not in self._names_of(host)]

    def _names_of(self, host: Host) -> set[str]:
        try:
            with (
                socket.create_connection((host.address, self._port), timeout=5) as plain,
                self.context().wrap_socket(plain, server_hostname=host.address) as secured,
            ):
                names = t.cast("dict[str, t.Any]", secured.getpeercert() or {}).get("subjectAltName", ())
        except OSError:
            return set()
        return {value for kind, value in names if kind == "DNS"}

    def settled(self) -> tuple[list[Member], Quorum]:
        """Return the answers and the count; an election that is going on is waited for."""
        answers = settled(
            self.answers,
            lambda members: quorum(members).kept or all(member.error for member in members),
        )
        return answers, quorum(answers)

    def membership(self, first: Collection[str] = ()) -> Membership:
        """Return the calls that change the membership; those who answered are asked first."""
        names = sorted(self._addresses, key=lambda name: name not in first)
        return Membership({name: self._addresses[name] for name in names}, self.context(), self._port)

    def add(self, host: Host, compared: Collection[str], bare: Collection[str]) -> tuple[dict[str, str], str]:
        """Add a host without data as a learner.

        Args:
            host: the host.
            compared: hosts that were looked at in this run.
            bare: those of them that have no data.

        Returns:
            What it is told, and the arithmetic of its promotion.

        Raises:
            ClusterError: there is no quorum, or its name or address is that of a member that has started.
        """
        answers, count = self.settled()
        if not count.kept:
            raise _refusal(host, self.hosts, count, compared, bare)
        membership = self.membership([member.name for member in answers if not member.error])
        entry = belongs_to(membership.listed(), host)
        if entry is not None and entry.started:
            raise ClusterError(
                _taken(host, entry),
                f"Replace the member: playbooks/member_replace.yml -e ironspan_hosts={host.name}",
            )
        if entry is None or entry.learner:
            numbers = insist(count, count.promoting(), f"add {host.name}")
        else:
            # One of the first members that has never started: its vote counts already.
            numbers = str(count)
        listed = membership.add_learner(host.name, peer_url(host))
        cluster = initial_cluster(listed, host.name, peer_url(host))
        return one_time_input("existing", cluster), numbers

    def insist_listed(self, hosts: Sequence[Host]) -> None:
        """Refuse to start hosts that have data and are no members; says nothing without a quorum.

        Raises:
            ClusterError: a quorum answers and does not list one of them.
        """
        answers = self.answers()
        if not quorum(answers).kept:
            return
        listed = self.membership([member.name for member in answers if not member.error]).listed()
        strangers = [host.name for host in hosts if belongs_to(listed, host) is None]
        if strangers:
            raise ClusterError(*_stranger(strangers))

    def without_vote(self) -> list[Host]:
        """Return the hosts of members that have started and have no vote; none without a quorum."""
        try:
            listed = self.membership().listed(wait=False)
        except ClusterError:
            return []
        learners = {member.name for member in listed if member.learner and member.started}
        return [host for host in self.hosts if host.name in learners]

    def promote(self, host: Host, seconds: float, progress: Callable[[str], None]) -> bool:
        """Wait until a learner is in sync and promote it; returns whether it was a learner before.

        Raises:
            ClusterError: it is not listed, or not in sync in time.
        """
        membership = self.membership()
        entry = belongs_to(membership.listed(), host)
        if entry is None:
            raise ClusterError(*_stranger([host.name]))
        if entry.learner:
            membership.promote(entry.id, seconds, progress)
        return entry.learner

    def removal(self, host: Host) -> tuple[Listed | None, str]:
        """Return the entry to remove for a host, and the arithmetic.

        Raises:
            QuorumError: the quorum would be lost, or there is none.
        """
        answers, count = self.settled()
        action = f"remove {host.name}"
        if not count.kept:
            insist(count, count, action)
        entry = belongs_to(self.membership([m.name for m in answers if not m.error]).listed(), host)
        if entry is None:
            return None, str(count)
        after = count if entry.learner else count.removing(entry.id in count.well)
        return entry, insist(count, after, action)

    def remove(self, host: Host) -> tuple[bool, str]:
        """Remove a host's member; returns whether it was there, and the arithmetic.

        Raises:
            QuorumError: the quorum would be lost, or there is none.
        """
        entry, numbers = self.removal(host)
        if entry is None:
            return False, numbers
        others = [member.name for member in self.hosts if member.name != host.name]
        return self.membership(others).remove(entry.id), numbers


def _stranger(names: Sequence[str]) -> tuple[str, str]:
    return (
        f"etcd does not list {', '.join(names)}, although it has data.",
        "They are those of a member that was removed, or of another store: "
        f"playbooks/member_replace.yml -e ironspan_hosts={names[0]} rebuilds it.",
    )


def _taken(host: Host, entry: Listed) -> str:
    if entry.name == host.name:
        return f"{host.name} has no data, and etcd lists it as member {entry.id}: its data are lost."
    return (
        f"{host.name} cannot join etcd: its address {host.address} is that of the member "
        f"{entry.name or entry.id}, which is listed still."
    )


def _refusal(
    host: Host, hosts: Sequence[Host], count: Quorum, compared: Collection[str], bare: Collection[str]
) -> QuorumError:
    data = [other.name for other in hosts if other.name in compared and other.name not in bare]
    unknown = [other.name for other in hosts if other.name not in compared]
    what = "; ".join(
        f"{', '.join(names)} {text}"
        for names, text in ((data, "with data"), (unknown, "not looked at in this run"))
        if names
    )
    return QuorumError(
        f"{host.name} has no data, and no quorum of etcd answers that it could join ({count}). "
        f"It does not start a store of its own beside {what or 'the others'}.",
        "Bring the members with data back, or restore etcd from a backup. For the first start of a new "
        "store all hosts of the group etcd must be reachable: take out those that are not yet.",
    )
