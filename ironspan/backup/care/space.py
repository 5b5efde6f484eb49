# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Gets a cluster out of the alarm NOSPACE: compact, defragment, disarm.

A member whose file reached its quota raises the alarm, and from then on every write of the cluster is refused
but for deletions, until somebody disarms it. Old revisions are nearly always what fills the file.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

from ironspan.backup.care.defragment import defragment
from ironspan.backup.care.health import NO_SPACE, Health, Member, look
from ironspan.etcd import rpc_pb2 as rpc
from ironspan.etcd.client import EtcdClient
from ironspan.etcd.errors import Compacted
from ironspan.program.errors import ProgramError

LOG = logging.getLogger(__name__)
LEAST_FREE_PERCENT, LEAST_FREE_BYTES = 5, 4 << 20
"""Of the quota, whichever is more: with less the alarm would be back at once."""
COMPACTION_SECONDS = 120.0


def make_room(
    client: EtcdClient,
    health: Health,
    logged: Callable[[], int] | None = None,
    going_on: Callable[[], bool] = lambda: True,
) -> bool:
    """Handle the alarm if it is raised; every step may be repeated.

    Args:
        client: knows the endpoints of all members.
        health: of the cluster.
        logged: the last revision that the backup's log has seen; nothing newer is compacted, so that the log
            stays without a gap.
        going_on: whether this is still this agent's task.

    Returns:
        Whether the alarm was raised and is no more.

    Raises:
        ProgramError: compaction frees too little; the message says what to do.
    """
    raised = health.raised(NO_SPACE)
    if not raised:
        return False
    LOG.warning("The alarm NOSPACE is raised by %s", ", ".join(map(health.endpoint, raised)))
    revision = client.header().revision
    if logged is not None:
        revision = min(revision, logged())
    if revision > 0:
        with contextlib.suppress(Compacted):
            client.compact(revision, physical=True, timeout=COMPACTION_SECONDS)
    members = sorted(look(client).members, key=lambda member: member.id == member.leader)
    defragment(client, members, despite=NO_SPACE, going_on=going_on)
    health = look(client)
    full = [member for member in health.members if _is_full(member)]
    if full:
        raise ProgramError(
            f"etcd is full of data that are in use: {full[0].endpoint} needs {full[0].size} of "
            f"{full[0].quota} bytes after compaction at revision {revision}. Writes stay refused.",
            "Find what fills it (ironspan-etcd-backup list shows counts by prefix), delete that, or raise "
            "etcd_quota_bytes and run playbooks/etcd.yml; the alarm is cleared by itself then.",
        )
    for member in raised:
        client.set_alarm(member, rpc.AlarmType.NOSPACE, active=False)
    LOG.warning("Compacted at revision %d, defragmented, alarm NOSPACE cleared", revision)
    return True


def _is_full(member: Member) -> bool:
    return member.quota - member.size < max(member.quota * LEAST_FREE_PERCENT // 100, LEAST_FREE_BYTES)
