# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Ranges of numbers. Argument specifications have types and choices, but no ranges."""

from __future__ import annotations

import typing as t


class Limit(t.NamedTuple):
    """Smallest and largest value that is accepted, and the reason, which is shown to the operator."""

    smallest: float
    largest: float
    reason: str


LIMITS: dict[str, Limit] = {
    # kubeadm: PodSubnetNodeMaskMaxDiff is 16 and kubelet's default of 110 pods wants more than a /26.
    "site_node_cidr_mask": Limit(16, 28, "a host needs addresses for its pods"),
    "site_node_cidr_mask_ipv6": Limit(64, 120, "a host needs addresses for its pods"),
    # The largest size that somebody has reported on, see sizes.py.
    "site_planned_nodes": Limit(0, 7500, "nodes; no larger cluster has been reported on"),
    # RFC 8200 section 5 asks for 1280 (IPv6 minimum); 9216 is the largest frame that common switches carry.
    "site_wan_mtu": Limit(1280, 9216, "MTU in bytes"),
    "cilium_mtu": Limit(0, 9216, "bytes; 0 means what the path carries"),
    # The default time a pod has for its end is 30 s (Kubernetes: terminationGracePeriodSeconds).
    "site_drain_timeout_seconds": Limit(10, 86_400, "seconds; a pod has 30 by default"),
    # etcd refuses an election timeout above 50 s (server/embed/config.go, maxElectionMs).
    "etcd_election_ms": Limit(500, 50_000, "milliseconds; etcd accepts at most 50000"),
    "etcd_heartbeat_ms": Limit(10, 5_000, "milliseconds"),
    # etcd: "8GiB is a suggested maximum size for normal environments" (docs: system limits).
    "etcd_quota_bytes": Limit(64 * 2**20, 8 * 2**30, "bytes; etcd suggests at most 8 GiB"),
    "etcd_events_quota_bytes": Limit(64 * 2**20, 8 * 2**30, "bytes; etcd suggests at most 8 GiB"),
    "etcd_backup_flush_ms": Limit(20, 5_000, "milliseconds"),
    "etcd_backup_snapshot_seconds": Limit(10, 7 * 86_400, "seconds, at most a week"),
    "etcd_backup_spool_bytes": Limit(2**20, 2**42, "bytes, at least 1 MiB"),
    "etcd_backup_memory_bytes": Limit(128 * 2**20, 2**42, "bytes, at least 128 MiB"),
    "etcd_backup_cpu_percent": Limit(5, 10_000, "per cent of one core"),
    "etcd_backup_drill_memory_bytes": Limit(128 * 2**20, 2**42, "bytes, at least 128 MiB"),
    "etcd_backup_drill_cpu_percent": Limit(1, 10_000, "per cent of one core"),
    "etcd_backup_drill_max_age_seconds": Limit(60, 400 * 86_400, "seconds"),
    "access_wait_hours": Limit(1, 720, "hours, at least 1"),
    "gvisor_smoke_interval_seconds": Limit(60, 7 * 86_400, "seconds, a minute to a week"),
    "etcd_backup_defragment_percent": Limit(1, 99, "per cent"),
    "etcd_backup_quota_warn_percent": Limit(1, 99, "per cent"),
}

SUFFIXES: dict[str, Limit] = {
    "_port": Limit(1, 65_535, "a TCP or UDP port"),
    "_percent": Limit(0, 100, "per cent"),
    "_mtu": Limit(576, 9216, "MTU in bytes"),
    "_ms": Limit(0, 24 * 3_600_000, "milliseconds"),
    "_seconds": Limit(0, 10 * 365 * 86_400, "seconds"),
    "_hours": Limit(0, 10 * 365 * 24, "hours"),
    "_days": Limit(0, 20 * 365, "days"),
    "_bytes": Limit(0, 2**60, "bytes"),
    "_mb": Limit(0, 2**40, "megabytes"),
    "_count": Limit(0, 1_000_000, "a number of things"),
}


def limit_of(name: str) -> Limit | None:
    """Return the range of a numeric variable: its own, or the one its unit (the end of its name) implies."""
    if name in LIMITS:
        return LIMITS[name]
    for suffix, limit in SUFFIXES.items():
        if name.endswith(suffix):
            return limit
    return None
