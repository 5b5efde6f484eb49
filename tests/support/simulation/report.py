# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A simulation's outcome as text for a person."""

from __future__ import annotations

from tests.support.simulation.outcome import Outcome, Phase

LEAST = 100
"""Requests of a kind within a phase: with fewer, the 99th percentile is the slowest one."""
_MIB = 2**20


def text(outcome: Outcome) -> str:
    """Return everything that was measured, for one simulation."""
    plan = outcome.plan
    flags = ", ".join(f"{key} {value}" for key, value in outcome.flags.items()) or "defaults"
    lines = [
        f"{plan.nodes} nodes, {'with' if plan.with_profile else 'without'} the profile "
        f"of {plan.planned or plan.nodes} nodes; API server: {flags}; "
        f"etcd {'waits for' if plan.fsync else 'does not wait for'} the disk; "
        f"events {'in an etcd of their own' if plan.events_apart else 'with everything else'}",
        f"{outcome.at_once} joins at the same time; each Node changed {outcome.node_changes:.1f} times",
        f"nodes that were Ready and then were not: {len(outcome.flaps)}",
        f"watches: {sum(outcome.watches.values())}, of nodes {outcome.watches.get('nodes', 0)}, "
        f"of pods {outcome.watches.get('pods', 0)}",
        "objects: " + ", ".join(f"{key} {value}" for key, value in outcome.objects.items()),
        "etcd: " + ", ".join(f"{key} {value / _MIB:.1f} MiB" for key, value in outcome.etcd_bytes.items()),
        "memory at the end and at most, MiB: "
        + ", ".join(f"{key} {now:.0f} / {most:.0f}" for key, (now, most) in outcome.memory.items()),
    ]
    return "\n".join([*lines, *(line for part in outcome.phases for line in phase(part))])


def phase(measured: Phase) -> list[str]:
    """Return what was measured in one phase."""
    used = ", ".join(f"{key} {seconds:.1f}" for key, seconds in measured.cpu.items())
    messages = measured.counters["apiserver_watch_events_total"]
    volume = measured.counters["apiserver_watch_events_sizes_sum"] / _MIB
    refused = measured.counters["apiserver_flowcontrol_rejected_requests_total"]
    slow = measured.counters["apiserver_terminated_watchers_total"]
    lines = [
        "",
        f"{measured.name}: {measured.seconds:.0f} s; seconds of CPU: {used}",
        f"  messages to watches: {messages:.0f}, {messages / measured.seconds:.0f} a second, "
        f"{volume:.1f} MiB; ended for reading too slowly: {slow:.0f}",
        f"  requests refused: {refused:.0f}",
        f"  heartbeats: {measured.rate('PUT', 'leases'):.1f} leases a second, "
        f"{measured.rate('PATCH', 'nodes/status'):.2f} statuses a second",
    ]
    return lines + [
        f"  {row.verb:8} {row.resource:32} {row.scope:10} {row.count:8} requests, "
        f"p99 {row.p99 * 1000:7.1f} ms"
        for row in measured.requests
        if row.count >= LEAST
    ]
