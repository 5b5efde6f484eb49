# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Gives free pages of the members' files back to the disk: one member at a time, the leader last.

A member serves nothing while its file is rewritten. A leader that does not answer costs an election, so the
leader hands over before it is its turn.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from ironspan.backup.care.health import Health, Member, look
from ironspan.etcd.client import EtcdClient
from ironspan.etcd.errors import EtcdError
from ironspan.program.errors import ProgramError

LOG = logging.getLogger(__name__)
SETTLE_SECONDS = 30.0
"""For how long a member may take to be in sync again; it has missed what was written meanwhile."""
BYTES_PER_SECOND = 50 << 20
"""Slowest rate at which a file is expected to be rewritten."""
_STEP_SECONDS = 0.2


def due(health: Health, percent: int, least_bytes: int) -> list[Member]:
    """Return the members whose files are worth rewriting, in the order in which it is done.

    Args:
        health: of the cluster.
        percent: of the file that has to be free.
        least_bytes: that have to be free.

    Returns:
        Followers, then the leader.
    """
    worth = [
        member
        for member in health.members
        if member.fragmentation >= percent and member.size - member.in_use >= least_bytes
    ]
    return sorted(worth, key=lambda member: member.id == member.leader)


def defragment(
    client: EtcdClient,
    members: list[Member],
    *,
    despite: str = "",
    going_on: Callable[[], bool] = lambda: True,
    settle_seconds: float = SETTLE_SECONDS,
) -> int:
    """Defragment members one after the other; stops at the first after which not all are healthy.

    Args:
        client: knows the endpoints of all members.
        members: from ``due``.
        despite: an alarm that may be raised meanwhile.
        going_on: asked before each member; whether this is still this agent's task.
        settle_seconds: for how long a member may take to be in sync again.

    Returns:
        How many were defragmented.

    Raises:
        ProgramError: the cluster is not healthy, or a member does not come back.
    """
    done = 0
    for member in members:
        if not going_on():
            break
        health = _settled(client, 0.0 if not done else settle_seconds, despite)
        if health.leader is not None and health.leader.id == member.id:
            _hand_over(client, health, member, despite, settle_seconds)
        LOG.info(
            "Defragmenting %s: %.0f %% of %d bytes are free",
            member.endpoint,
            member.fragmentation,
            member.size,
        )
        client.defragment(member.endpoint, timeout=60 + member.size / BYTES_PER_SECOND)
        done += 1
    if done:
        _settled(client, settle_seconds, despite)
    return done


def _settled(client: EtcdClient, seconds: float, despite: str) -> Health:
    """Wait until every member is healthy."""
    end = time.monotonic() + seconds
    while True:
        health = look(client)
        problems = health.problems + [
            f"{health.endpoint(member)}: the alarm {name} is raised"
            for member, name in health.alarms
            if name != despite
        ]
        if not problems:
            return health
        if time.monotonic() >= end:
            raise ProgramError(
                f"No member is defragmented while not all are well: {'; '.join(problems)}.",
                "Fix that first (ironspan doctor); defragmentation goes on by itself then.",
            )
        time.sleep(_STEP_SECONDS)


def _hand_over(client: EtcdClient, health: Health, leader: Member, despite: str, seconds: float) -> None:
    """Make the member that is most in sync the leader; a cluster of one has nobody to hand over to."""
    others = [member for member in health.members if member.id != leader.id]
    if not others:
        return
    target = max(others, key=lambda member: member.applied)
    try:
        client.move_leader(leader.endpoint, target.id)
    except EtcdError as error:
        raise ProgramError(
            f"{leader.endpoint} leads and does not hand over: {error.message}.",
            "It is tried again with the next look; without it an election would interrupt the writes.",
        ) from None
    _settled(client, seconds, despite)
