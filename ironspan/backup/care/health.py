# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How the members of an etcd cluster are."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from ironspan.etcd import rpc_pb2 as rpc
from ironspan.etcd.client import EtcdClient
from ironspan.etcd.errors import EtcdError

STATUS_SECONDS = 2.0
BEHIND = 1_000
"""Entries of the log that a member may lack and still count as in sync; at 1,000 writes/s one second."""
NO_SPACE, CORRUPT = "NOSPACE", "CORRUPT"


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """What one member says of itself.

    Attributes:
        endpoint: its client URL.
        id: its member id, 0 when it does not answer.
        leader: id of the member that it follows, 0 without one.
        learner: whether it has no vote yet.
        size: bytes of its database file.
        in_use: bytes of it that hold something.
        quota: bytes that the file may grow to.
        applied: index of the last log entry that is in its database.
        version: of etcd.
        problem: why it counts as unhealthy, empty when it does not.
    """

    endpoint: str
    id: int = 0
    leader: int = 0
    learner: bool = False
    size: int = 0
    in_use: int = 0
    quota: int = 0
    applied: int = 0
    version: str = ""
    problem: str = ""

    @property
    def fragmentation(self) -> float:
        """Percent of the file that hold nothing."""
        return 100.0 * (self.size - self.in_use) / self.size if self.size else 0.0

    @property
    def quota_used(self) -> float:
        """Percent of the quota that the file takes."""
        return 100.0 * self.size / self.quota if self.quota else 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Health:
    """The members in the order of their endpoints, and the alarms: pairs of member id and name."""

    members: tuple[Member, ...]
    alarms: tuple[tuple[int, str], ...] = ()

    @property
    def problems(self) -> list[str]:
        """What is wrong, a sentence a member; defragmentation waits until it is nothing."""
        return [f"{member.endpoint}: {member.problem}" for member in self.members if member.problem]

    @property
    def leader(self) -> Member | None:
        """The member that leads, if it is among those asked."""
        return next((member for member in self.members if member.id and member.id == member.leader), None)

    def raised(self, alarm: str) -> list[int]:
        """Return the ids of the members for which an alarm is raised."""
        return [member for member, name in self.alarms if name == alarm]

    def endpoint(self, member: int) -> str:
        """Return the client URL of a member, or its id in etcd's spelling when nobody at a URL has it."""
        return next((known.endpoint for known in self.members if known.id == member), f"{member:x}")


def look(client: EtcdClient) -> Health:
    """Ask every member, and one of them for the alarms.

    Args:
        client: knows the endpoints of all members.

    Raises:
        EtcdError: nobody answers.
    """
    members = judged(_ask(client, endpoint) for endpoint in client.endpoints)
    answering = next((member.endpoint for member in members if member.id), None)
    alarms = client.alarms(endpoint=answering)
    return Health(
        members,
        tuple((alarm.memberID, rpc.AlarmType.Name(alarm.alarm)) for alarm in alarms),
    )


def judged(asked: Iterable[Member]) -> tuple[Member, ...]:
    """Add to each member what only a comparison with the others shows."""
    members = list(asked)
    newest = max((member.applied for member in members), default=0)
    leaders = {member.leader for member in members if member.id}

    def problem(member: Member) -> str:
        if member.problem:
            return member.problem
        if not member.leader:
            return "it has no leader"
        if len(leaders) > 1:
            return "the members follow different leaders"
        if member.learner:
            return "it is a learner still"
        if newest - member.applied > BEHIND:
            return f"it is {newest - member.applied} log entries behind"
        return ""

    return tuple(dataclasses.replace(member, problem=problem(member)) for member in members)


def _ask(client: EtcdClient, endpoint: str) -> Member:
    try:
        answer = client.status(endpoint, timeout=STATUS_SECONDS)
    except EtcdError as error:
        return Member(endpoint, problem=error.message)
    return Member(
        endpoint,
        answer.header.member_id,
        answer.leader,
        answer.isLearner,
        answer.dbSize,
        answer.dbSizeInUse,
        answer.dbSizeQuota,
        answer.raftAppliedIndex,
        answer.version,
    )
