# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What way back there is when a step of an upgrade went wrong, and where there is none (docs/upgrade.md)."""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.upgrade.skew import Version

AGAIN = "Fix it and run the same again: it goes on where it stopped."


def of_etcd(wanted: Version, cluster: Version | None, former: Version | None) -> str:
    """Return the way back while etcd members are upgraded.

    Args:
        wanted: the version they shall run.
        cluster: the version that the members have agreed on, None if nobody says.
        former: the oldest version that a member still runs, None if none runs another than wanted.
    """
    back = f'set etcd_version to "{former or "what it was"}" and run upgrade.yml'
    if former and former.line == wanted.line:
        return f"{AGAIN} Or back: {back}; patch releases share their data."
    if cluster is not None and cluster.line < wanted.line:
        return (
            f"{AGAIN} Or back, without loss: {back}. The members that have {wanted} go back one by one; the "
            f"cluster's version is still {cluster}, so the data have the old form."
        )
    return (
        f"{AGAIN} All members have agreed on {cluster or wanted}, so their data have the new form: an "
        "older etcd does not start on them. Back without loss only by etcd's own downgrade: "
        f"etcdctl downgrade enable {wanted.major}.{wanted.minor - 1}.0, then {back}. "
        "The snapshot loses what was written after it."
    )


def of_control_planes(wanted: Version, done: int, count: int) -> str:
    """Return the way back while control planes are upgraded.

    Args:
        wanted: the version they shall run.
        done: how many run it.
        count: how many there are.
    """
    if not done:
        return (
            f"{AGAIN} Or back: set site_kubernetes_version back. The host that failed was put back by its "
            "own transaction, and no API server runs the new version."
        )
    return (
        f"{AGAIN} {done} of {count} API servers run {wanted}. There is no way back: kubeadm does not go, "
        f"and objects may be stored as only {wanted} reads them. The cluster works with both versions "
        "meanwhile. Only the snapshot of etcd with the former version would be one, and it loses "
        "everything that came after it."
    )


def of_nodes(wanted: Version) -> str:
    """Return the way back while nodes are upgraded."""
    return (
        f"{AGAIN} Or leave it: kubelets may be three minor versions older than the API server. Back for one "
        "node: give that host its former site_kubernetes_version (containerd_version) and run upgrade.yml. "
        f"What already runs {wanted} may stay."
    )


def of_drivers(names: Sequence[str]) -> str:
    """Return what became of nodes whose GPUs failed their preflight with another driver."""
    return (
        f"The GPUs of {', '.join(names)} failed their preflight with the driver of the inventory; the one of "
        "before runs again, and no other wave begins. Set nvidia_driver_version back or to another one: the "
        "next run would try the same again. What failed: ironspan gpu why NODE, or journalctl -u "
        "ironspan-gpud-preflight on the host."
    )


def of_kept_drivers(names: Sequence[str]) -> str:
    """Return the way back of nodes that were to keep the driver that failed."""
    return (
        f"{', '.join(names)} keeps the driver that failed and stays cordoned, as this run was told "
        "(ironspan_keep_driver). Run again without that, and it goes back to the driver of before."
    )


def of_returning(names: Sequence[str]) -> str:
    """Return what there is to do where nodes are not well with the driver of before either."""
    return (
        f"{', '.join(names)} went back to the driver of before, because GPUs failed their preflight with the "
        "one of the inventory. What is not well now is not that driver's doing. The wave stays cordoned. "
        f"{AGAIN}"
    )
