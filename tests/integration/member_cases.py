# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What happens to members of a small cluster: a disk is lost, a step would lose the quorum."""

from __future__ import annotations

import json

from tests.integration.conftest import Cluster

MEMBERS = ("az-1", "az-2", "az-3")


def healthy(cluster: Cluster, host: str = "az-2") -> list[bool]:
    """Return whether each member that the store lists is healthy, as etcdctl says on a host."""
    answer = cluster.on(
        host,
        "set -a; . /etc/etcd/etcdctl.env; etcdctl --command-timeout=60s endpoint health --cluster -w json",
        check=False,
    )
    return [bool(member["health"]) for member in json.loads(answer)]


def started(cluster: Cluster, *hosts: str) -> dict[str, str]:
    """Return when etcd was started on hosts."""
    show = "systemctl show -p ActiveEnterTimestampMonotonic --value etcd"
    return {host: cluster.on(host, show) for host in hosts}


def lose_the_disk(cluster: Cluster, host: str) -> None:
    """Empty a member's data folder, and let systemd try to start it."""
    cluster.on(host, "systemctl stop etcd; rm -rf /var/lib/etcd/*/member; systemctl start --no-block etcd")


def an_empty_disk_is_refused_by_site_and_fixed_by_a_replacement(cluster: Cluster) -> None:
    """Lose az-3's disk; az-3 holds no control plane, so the API answers all the time."""
    before = started(cluster, "az-1", "az-2")
    lose_the_disk(cluster, "az-3")
    played = cluster.site("--limit", "etcd")
    assert played.status != 0, played.output
    assert "az-3 has no data, and etcd lists it as member" in played.output
    assert "playbooks/member_replace.yml -e ironspan_hosts=az-3" in played.output
    # By itself it starts nothing either.
    assert cluster.on("az-3", "systemctl is-active etcd", check=False) != "active"

    options = ["-i", str(cluster.inventory), "-e", "ironspan_hosts=az-2", "--allow-destructive"]
    refused = cluster.command("apply", "member_replace", *options)
    assert refused.returncode == 2, refused.stdout
    words = " ".join(refused.stdout.split())
    assert "3 members, 2 needed, 2 healthy; after: 2 members, 2 needed, 1 healthy" in words
    assert "Not healthy: az-3" in words

    options[3] = "ironspan_hosts=az-3"
    replaced = cluster.command("apply", "member_replace", *options)
    assert replaced.returncode == 0, replaced.stdout
    assert healthy(cluster) == [True, True, True]
    assert started(cluster, "az-1", "az-2") == before
    assert cluster.site().changed == {}
