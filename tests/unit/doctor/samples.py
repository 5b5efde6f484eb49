# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A small site in good health."""

from __future__ import annotations

import copy
import dataclasses
import typing as t
from collections.abc import Callable

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.etcd import Member
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.findings import (
    Content,
    Controller,
    Evidence,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import layers_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import (
    Host,
    PlanPolicy,
    Site,
)

NOW = 1_800_000_000.0
DAY = 86400
GIB = 2**30


def host(name: str, address: str, side: str, *groups: str) -> Host:
    """Return a host."""
    return Host(
        name=name,
        address=address,
        ansible_host=address,
        groups=(side, *groups),
        rack="",
        labels={},
        taints=(),
        site_group=side,
        mirror_url="",
        kubernetes_version="1.36.4",
        layers=layers_of((side, *groups)),
        variables={
            "containerd_version": "2.3.4",
            "etcd_version": "3.6.14",
            "etcd_quota_bytes": 8 * GIB,
            "base_max_clock_skew_seconds": 5,
            "egress_enabled": True,
        },
    )


def site(approvals: int = 0) -> Site:
    """Return a site of one host on each side."""
    hosts = [
        host("az-1", "10.0.0.1", "azure", "etcd", "control_plane", "haproxy"),
        host("rack-1", "10.1.0.1", "on_prem", "nodes"),
    ]
    return Site(
        "small", "api:6443", "10.0.0.9", "10.244.0.0/16", "10.96.0.0/16", 24, "cluster.local", "1.36.4", 1400,
        "/nowhere/pki", "", "", {one.name: one for one in hosts}, PlanPolicy(approvals=approvals),
    )  # fmt: skip


def site_with(variables: t.Mapping[str, t.Any]) -> Site:
    """Return the site with more variables, which all of its hosts have."""
    found = site()
    hosts = {
        name: dataclasses.replace(one, variables={**one.variables, **variables})
        for name, one in found.hosts.items()
    }
    return dataclasses.replace(found, hosts=hosts)


def unit(active: str = "active", **values: str) -> dict[str, str]:
    """Return the state of a service."""
    return {"active": active, "sub": "running", "result": "success", "restarts": "0", **values}


def answer(*units: str) -> Content:
    """Return what a healthy host says."""
    disk = {
        "bytes": 100 * GIB,
        "free_bytes": 60 * GIB,
        "inodes": 1000,
        "free_inodes": 900,
        "read_only": False,
    }
    return {
        "time_unix": NOW,
        "seconds": 0.3,
        "skew_s": 0.01,
        "skew_uncertain_s": 0.4,
        "disks": [{"path": "/", **disk}],
        "units": {name: unit() for name in units},
        "failed_units": [],
        "transaction": {},
        "egress": {"outside": 4, "spoofed": 0, "allow_1": 9},
        "slots": {"slot": "a", "good": "a", "trial": "", "bad": {}},
        "reboot_wanted": False,
        "reboots": [],
        "certificates": [
            {"path": "/etc/kubernetes/pki/ca.crt", "not_after": int(NOW) + 3000 * DAY},
            {"path": "/etc/kubernetes/kubelet.conf", "not_after": int(NOW) + 300 * DAY},
            {"path": "/var/lib/kubelet/pki/kubelet-server-current.pem", "not_after": int(NOW) + 30 * DAY},
        ],
        "network": {
            "mtu": [{"peer": "other", "wanted": 1400, "largest": 1400}],
            "dns": {"ms": 2.0},
            "api": {"ms": 30.0},
        },
        "drift": {"changes": [], "count": 0, "pending": [], "verdicts": [], "plan": ""},
    }


def node(name: str) -> Content:
    """Return a healthy node."""
    return {
        "metadata": {"name": name},
        "spec": {},
        "status": {
            "nodeInfo": {"kubeletVersion": "v1.36.4", "containerRuntimeVersion": "containerd://2.3.4"},
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": "True", "message": "kubelet is posting ready status"},
            ],
        },
    }


def pod() -> Content:
    """Return a healthy pod of the system."""
    return {
        "metadata": {"name": "coredns-1", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}},
        "spec": {"nodeName": "rack-1"},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"restartCount": 1, "state": {"running": {}}}],
        },
    }


def member(**values: t.Any) -> Member:
    """Return a healthy member that is alone."""
    whole: dict[str, t.Any] = {
        "healthy": True, "cluster": "c", "member": "1", "leader": "1", "version": "3.6.14", "revision": 9,
        "listed": ("1",), "hash": "7@9/1", "database_bytes": 300 * 2**20, "used_bytes": 250 * 2**20,
        "quota_bytes": 8 * GIB, **values,
    }  # fmt: skip
    return Member("az-1", "10.0.0.1", **whole)


class Draft:
    """Evidence that a test may change."""

    def __init__(self) -> None:
        self.site = site()
        self.hosts = {
            "az-1": answer("etcd.service", "kubelet.service", "containerd.service", "haproxy.service"),
            "rack-1": answer("kubelet.service", "containerd.service"),
        }
        self.api: Content = {
            "version": "v1.36.4",
            "ready": "ok",
            "milliseconds": 31.0,
            "nodes": [node("az-1"), node("rack-1")],
            "requests": [],
            "pods": [pod()],
        }
        self.members = [member()]
        self.etcd_error = ""
        self.events: list[Member] = []
        self.controller = Controller(authorities={"etcd": int(NOW) + 3000 * DAY})
        server = {"state": "active", "maintenance": False, "reason": ""}
        self.estate: Content = {
            "name": "ironspan-small",
            "fault": "",
            "state": {"exists": True, "state": "succeeded", "changes": []},
            "ends": [],
            "quota": [],
        }
        self.fsync = {"az-1": 0.004}
        self.alerts: Content = {"host": "az-1", "error": "", "account": True}
        self.ironic: Content = {"conductors": ["rack-1"], "changing": False, "servers": {"gpu-1": server}}

    def evidence(self) -> Evidence:
        """Return it."""
        return Evidence(
            self.site, NOW, copy.deepcopy(self.hosts), copy.deepcopy(self.api), self.members,
            self.etcd_error, self.controller, self.events, copy.deepcopy(self.ironic),
            copy.deepcopy(self.estate), self.fsync, copy.deepcopy(self.alerts),
        )  # fmt: skip


Change = Callable[[Draft], object]
