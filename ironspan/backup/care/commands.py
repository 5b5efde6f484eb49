# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The command ``care``."""

from __future__ import annotations

import argparse
import dataclasses
import typing as t

if t.TYPE_CHECKING:
    from ironspan.backup.care.health import Health
    from ironspan.backup.settings import Settings


def add_commands(subparsers: t.Any) -> None:
    """Add ``care``."""
    command = subparsers.add_parser(
        "care", help="show how the members are; with --now do what the agent would do at its next look"
    )
    command.add_argument("--now", action="store_true", help="defragment and clear NOSPACE where it is due")
    command.set_defaults(func=_care)


def _care(settings: Settings, arguments: argparse.Namespace) -> int:
    from prometheus_client import CollectorRegistry

    from ironspan.backup.care.caretaker import CareMetrics, Caretaker
    from ironspan.backup.care.health import look
    from ironspan.backup.stores import certificates_of, client_of
    from ironspan.program.command import answer

    with client_of(settings) as client:
        if arguments.now:
            metrics = CareMetrics(CollectorRegistry())
            health = Caretaker(client, settings.care, certificates_of(settings), metrics).step()
        else:
            health = look(client)
    answer(arguments, as_data(health), as_text(health))
    return 1 if health.problems or health.alarms else 0


def as_data(health: Health) -> dict[str, t.Any]:
    """Return what was found for ``--json``."""
    return {
        "members": [
            {
                **dataclasses.asdict(member),
                "id": f"{member.id:x}",
                "leader": member.id == member.leader != 0,
                "fragmentation_percent": round(member.fragmentation, 1),
                "quota_used_percent": round(member.quota_used, 1),
            }
            for member in health.members
        ],
        "alarms": [{"member": health.endpoint(member), "alarm": name} for member, name in health.alarms],
    }


def as_text(health: Health) -> str:
    """Return what was found for people: a line a member, and the alarms."""
    lines = [
        f"{member.endpoint}: {member.problem or ('leads' if member.id == member.leader else 'follows')}, "
        f"{member.version or '-'}, {member.size / (1 << 20):.0f} MiB, {member.fragmentation:.0f} % free, "
        f"{member.quota_used:.0f} % of its quota"
        for member in health.members
    ]
    return "\n".join(lines + [f"alarm {name}: {health.endpoint(member)}" for member, name in health.alarms])
