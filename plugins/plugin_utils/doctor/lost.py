# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""etcd members that have no data any more: site.yml refuses them, so another command fixes it."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.findings import (
    PROBLEM,
    Content,
    Evidence,
    Finding,
    apply_command,
    operation,
)

_MEMBERSHIP, _START = "membership:etcd", "cluster:start-or-join"
"""What a member without data, and a control plane that belongs to no cluster, wait for (kinds etcd_member and
kubeadm)."""


class Lost(t.NamedTuple):
    """Whose data are gone.

    Args:
        hosts: members without data, in the inventory's order.
        down: members that did not answer, whose data may be gone too.
        etcd: the rest is too few for a quorum.
        unsure: it is too few without those that did not answer.
    """

    hosts: tuple[str, ...] = ()
    down: tuple[str, ...] = ()
    etcd: bool = False
    unsure: bool = False


def lost(evidence: Evidence) -> Lost:
    """Return whose data are gone; nothing where site.yml lets them begin or join."""
    members = [host.name for host in evidence.site.group("etcd")]
    answers = dict(evidence.answers())
    bare = tuple(name for name in members if name in answers and _waits(answers[name], _MEMBERSHIP))
    if not bare or not evidence.controller.built:
        return Lost()
    down = tuple(name for name in members if name not in answers)
    needed = len(members) // 2 + 1
    serving = [member for member in evidence.members if not member.error and member.leader not in ("", "0")]
    if len(serving) >= needed:
        # With fewer listed, they are new, and join.
        listed = max(len(member.listed) for member in serving)
        return Lost(bare) if listed >= len(members) else Lost()
    planes = [host.name for host in evidence.site.group("control_plane")]
    joined = any(name in answers and not _waits(answers[name], _START) for name in planes)
    if len(bare) + len(down) == len(members) and not joined:
        return Lost()
    left = len(members) - len(bare)
    return Lost(bare, down, etcd=left < needed, unsure=left >= needed > left - len(down))


def _waits(answer: Content, needs: str) -> bool:
    return any(entry.get("needs") == needs for entry in answer["drift"].get("pending") or ())


def finding(evidence: Evidence) -> Iterator[Finding]:
    """Say it once for all members."""
    found = lost(evidence)
    if found.hosts:
        what = "has lost its data, and is an etcd member"
        if found.etcd:
            count = len(evidence.site.group("etcd"))
            what = f"has lost its data, as {len(found.hosts)} of {count} members: etcd cannot go on"
        yield Finding(PROBLEM, what, fix(evidence, found.hosts), found.hosts)


def fix(evidence: Evidence, hosts: Iterable[str]) -> str:
    """Return what fixes hosts, members without data among them: site.yml would refuse these.

    Args:
        evidence: with the hosts' answers.
        hosts: what a finding is about.
    """
    site, found = evidence.site, lost(evidence)
    named = list(hosts)
    gone = [name for name in found.hosts if name in named]
    rest = [name for name in named if name not in gone]
    restore = operation(site, "etcd_restore", destructive=True)
    parts = [restore] if gone and found.etcd else []
    if gone and found.unsure:
        parts.append(f"bring {', '.join(found.down)} back (where those data are gone too: {restore})")
    if rest:
        parts.append(apply_command(site, rest))
    if gone and not found.etcd:
        one = operation(site, f"member_replace -e ironspan_hosts={gone[0]}", destructive=True)
        parts.append(f"{one}{', and the same for ' + ', '.join(gone[1:]) if gone[1:] else ''}")
    return "; then ".join(parts)
