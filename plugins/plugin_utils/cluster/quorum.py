# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of etcd's quorum: who votes, how many votes a decision takes, what a step makes of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.etcd import Member
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError


@dataclasses.dataclass(frozen=True, slots=True)
class Quorum:
    """How many members vote, and how many of them are well.

    Args:
        voters: members that vote; learners do not.
        healthy: those of them that answer, know a leader and say they are healthy.
        missing: names or ids of the others, for messages.
        well: ids of the healthy ones.
    """

    voters: int
    healthy: int
    missing: tuple[str, ...] = dataclasses.field(default=(), compare=False)
    well: frozenset[str] = dataclasses.field(default=frozenset(), compare=False)

    @property
    def needed(self) -> int:
        """How many votes a decision takes: more than half."""
        return self.voters // 2 + 1

    @property
    def kept(self) -> bool:
        """Whether the healthy ones can decide anything."""
        return self.voters > 0 and self.healthy >= self.needed

    def __str__(self) -> str:
        """Return the arithmetic, for example ``3 members, 2 needed, 3 healthy``."""
        members = "1 member" if self.voters == 1 else f"{self.voters} members"
        return f"{members}, {self.needed} needed, {self.healthy} healthy"

    def restarting(self) -> Quorum:
        """Return the state while one healthy member restarts."""
        return dataclasses.replace(self, healthy=max(0, self.healthy - 1))

    def removing(self, healthy: bool) -> Quorum:
        """Return the state after a member was removed; ``healthy`` says whether it was."""
        gone = 1 if healthy else 0
        return dataclasses.replace(self, voters=max(0, self.voters - 1), healthy=max(0, self.healthy - gone))

    def promoting(self) -> Quorum:
        """Return the state after a learner that is in sync was promoted."""
        return dataclasses.replace(self, voters=self.voters + 1, healthy=self.healthy + 1)


class QuorumError(ClusterError):
    """A step is refused, because etcd would lose its quorum or has none; the message has the numbers."""


def quorum(members: Sequence[Member]) -> Quorum:
    """Count votes.

    Args:
        members: what every member says of itself (``etcd.ask_members``).

    Returns:
        The count in the cluster that most members are in. The leader's list of members counts, because
        that of a member which was away may be old. Without any answer nobody is healthy.
    """
    answered = [member for member in members if not member.error]
    if not answered:
        return Quorum(len(members), 0, tuple(member.name for member in members))
    clusters = [member.cluster for member in answered]
    cluster = max(clusters, key=clusters.count)
    inside = [member for member in answered if member.cluster == cluster]
    view = next((m for m in inside if m.member == m.leader), max(inside, key=lambda m: len(m.listed)))
    voters = set(view.listed) - set(view.learners)
    healthy = {m.member for m in inside if m.member in voters and m.healthy and m.leader not in ("", "0")}
    names = {member.member: member.name for member in answered}
    silent = [member.name for member in members if member.error or member not in inside]
    unknown = [names.get(identifier, "") for identifier in sorted(voters - healthy)]
    missing = tuple(dict.fromkeys([*silent, *filter(None, unknown)]))
    return Quorum(len(voters), len(healthy), missing, frozenset(healthy))


def arithmetic(before: Quorum, after: Quorum) -> str:
    """Return both states, for people to check."""
    return f"{before}; after: {after}"


def insist(before: Quorum, after: Quorum, action: str) -> str:
    """Refuse a step that would lose the quorum.

    Args:
        before: the count now.
        after: the count when the step is done.
        action: the step as a clause, for example ``remove az-2``.

    Returns:
        The arithmetic.

    Raises:
        QuorumError: there is no quorum before, or none after.
    """
    numbers = arithmetic(before, after)
    missing = f" Not healthy: {', '.join(before.missing)}." if before.missing else ""
    if not before.kept:
        raise QuorumError(
            f"Cannot {action}: etcd has no quorum now ({before}).{missing}",
            "Bring a member back that still has its data; if none can be, restore etcd from a backup.",
        )
    if not after.kept:
        raise QuorumError(
            f"Cannot {action}: etcd would lose its quorum ({numbers}).{missing}",
            "Make the members healthy that are not, or add one first, and try again.",
        )
    return numbers
