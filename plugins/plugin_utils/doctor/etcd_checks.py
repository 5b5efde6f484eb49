# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""etcd: members, alarms, how full and how fragmented."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import etcd
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.findings import (
    NOTICE,
    PROBLEM,
    Evidence,
    Finding,
    apply_command,
    operation,
    size,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.lost import finding, fix

QUOTA_PROBLEM, QUOTA_NOTICE = 0.90, 0.75
"""Share of the quota in use. At all of it etcd refuses writes (alarm NOSPACE)."""
FRAGMENTED = 0.5
"""Share of the file that is not in use; below that a defragmentation is not worth the pause."""
SMALLEST_BYTES = 100 * 2**20
"""Smaller databases are not worth it either: etcd's own default of etcd-defrag rules, dbSize over 100 MiB."""
SLOW_FSYNC_S, VERY_SLOW_FSYNC_S = 0.010, 0.100
"""p99 of fdatasync: etcd's own advice is below 10 ms (etcd, Hardware recommendations and FAQ); at 100 ms, the
default interval of heartbeats, leaders get lost."""
CLIENT = "'set -a; . /etc/etcd/etcdctl.env; etcdctl {command}'"


def on_member(host: str, command: str) -> str:
    """Return the command that runs etcdctl on a member, with its certificates."""
    return f"ssh {host} {CLIENT.format(command=command)}"


def health(evidence: Evidence) -> Iterator[Finding]:
    """Members that have lost their data, do not answer, differ, or have no leader."""
    yield from finding(evidence)
    for problem in etcd.problems(evidence.members, _version(evidence)):
        host = problem.split(" ", 1)[0]
        hosts = (host,) if host in evidence.site.hosts else ()
        if " reports the alarm " in problem:
            continue
        remedy = fix(evidence, hosts or _all(evidence))
        running = re.search(r" runs version (\d+\.\d+)", problem)
        if running and not _version(evidence).startswith(f"{running[1]}."):
            # site.yml refuses another minor version.
            remedy = "ironspan plan upgrade"
        yield Finding(PROBLEM, problem, remedy, hosts)


def latency(evidence: Evidence) -> Iterator[Finding]:
    """Disks that are too slow for etcd's log."""
    for host, p99 in evidence.fsync.items():
        if p99 <= SLOW_FSYNC_S:
            continue
        yield Finding(
            PROBLEM if p99 > VERY_SLOW_FSYNC_S else NOTICE,
            f"the disk of etcd takes {p99 * 1000:.0f} ms for a write of the log (p99 since it started)",
            "give etcd a faster disk of its own, or look for what else writes to it: docs/sizes.md",
            (host,),
        )


def alarms(evidence: Evidence) -> Iterator[Finding]:
    """Alarms: NOSPACE refuses writes, CORRUPT means that members hold different data."""
    for member in evidence.members:
        for alarm in member.alarms:
            if alarm == "NOSPACE":
                remedy = (
                    f"{on_member(member.name, 'defrag')}, raise etcd_quota_bytes if it stays full, "
                    f"then {on_member(member.name, 'alarm disarm')}"
                )
            else:
                replace = f"member_replace -e ironspan_hosts={member.name}"
                remedy = (
                    f"{operation(evidence.site, replace, destructive=True)}, for the member whose data differ"
                )
            yield Finding(PROBLEM, f"etcd has the alarm {alarm}", remedy, (member.name,))


def space(evidence: Evidence) -> Iterator[Finding]:
    """How full etcd is, and how much of its file is holes."""
    for member in evidence.members:
        if member.error or not member.database_bytes:
            continue
        quota = member.quota_bytes or _quota(evidence, member.name)
        share = member.database_bytes / quota if quota else 0.0
        holes = 1 - member.used_bytes / member.database_bytes if member.used_bytes else 0.0
        defragment = on_member(member.name, "defrag")
        if share >= QUOTA_NOTICE:
            level = PROBLEM if share >= QUOTA_PROBLEM else NOTICE
            what = f"etcd is {share:.0%} full ({size(member.database_bytes)} of {size(quota)})"
            larger = f"raise etcd_quota_bytes, then {apply_command(evidence.site, _all(evidence))}"
            remedy = defragment if holes >= FRAGMENTED else larger
            yield Finding(level, what, remedy, (member.name,))
        elif holes >= FRAGMENTED and member.database_bytes >= SMALLEST_BYTES:
            what = f"{holes:.0%} of etcd's {size(member.database_bytes)} are holes"
            yield Finding(NOTICE, what, f"{defragment}; one member after the other", (member.name,))


def events(evidence: Evidence) -> Iterator[Finding]:
    """The etcd that events have of their own; without it API servers are not ready and restart."""
    members = [host.name for host in evidence.site.group("etcd")]
    again = "ansible-playbook playbooks/etcd_events_anew.yml throws all events away and starts over"
    for problem in etcd.problems(evidence.events, _version(evidence)):
        host = problem.split(" ", 1)[0]
        hosts = (host,) if host in members else ()
        remedy = f"{apply_command(evidence.site, hosts or members)}; if it stays: {again}"
        yield Finding(PROBLEM, f"events: {problem}", remedy, hosts)
    if evidence.site.size.events_apart and not evidence.site.events_servers:
        nodes = evidence.site.nodes_to_size_for
        what = f"events share etcd of a site of {nodes} nodes"
        yield Finding(NOTICE, what, "etcd_events_enabled: true, see docs/sizes.md")


def _all(evidence: Evidence) -> tuple[str, ...]:
    return tuple(host.name for host in evidence.site.group("etcd"))


def _version(evidence: Evidence) -> str:
    versions = {str(host.variables.get("etcd_version", "")) for host in evidence.site.group("etcd")}
    return versions.pop() if len(versions) == 1 else ""


def _quota(evidence: Evidence, name: str) -> int:
    return int(evidence.site.hosts[name].variables.get("etcd_quota_bytes") or 0)
