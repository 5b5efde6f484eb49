# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A plan of two hosts that no run made."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.build import build, host_entry
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.content import Content, Plan
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import PlanPolicy, Site

UID = "0123456789abcdef"
NOW = 1_800_000_000
CLUSTER: Content = {"state": "compared", "objects": {}, "nodes": {}, "changes": []}
RESOURCES = [
    {"kind": "file", "id": "base/motd", "path": "/etc/motd", "content": "new\nsame\n"},
    {"kind": "systemd_unit", "id": "node/kubelet", "name": "kubelet.service"},
    {"kind": "kubeadm", "id": "node/join", "action": "join"},
]
ANSWER: dict[str, t.Any] = {
    "digest": "d" * 64,
    "fingerprint": "f" * 64,
    "changes": [
        {
            "resource": "base/motd",
            "kind": "file",
            "action": "update",
            "before": {"sha256": "1", "mode": "0600"},
            "after": {"sha256": "2", "mode": "0644"},
            "reason": "content differs",
        },
        {
            "resource": "node/kubelet",
            "kind": "systemd_unit",
            "action": "restart",
            "before": {},
            "after": {},
            "reason": "",
        },
    ],
    "pending": [{"resource": "node/join", "needs": "certificate:node/join"}],
    "diff": [
        {
            "before_header": "/etc/motd (base/motd)",
            "after_header": "/etc/motd (base/motd)",
            "before": "old\nsame\n",
            "after": "new\nsame\n",
        },
        {"before_header": "/etc/motd (base/motd)", "after_header": "another", "before": "mode", "after": ""},
    ],
}
QUIET: dict[str, t.Any] = {"digest": "d" * 64, "fingerprint": "e" * 64, "changes": [], "pending": []}


def site(name: str = "small", uid: str = UID, **policy: t.Any) -> Site:
    """Return a site without hosts."""
    made = Site(
        name, "api:6443", "10.0.0.1", "10.244.0.0/16", "10.96.0.0/16", 24, "cluster.local", "1.36.4", 1400,
        "/nowhere/pki", "", "", {}, PlanPolicy(**policy),
    )  # fmt: skip
    made.uid_source = lambda: uid
    return made


def document(host: str, *more: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return a host's document."""
    return {"schema": 1, "site": "small", "host": host, "layers": ["base"], "resources": [*RESOURCES, *more]}


def plan(answer: dict[str, t.Any] | None = None, host: str = "w1", **more: t.Any) -> Plan:
    """Return a plan: one host with changes, one without."""
    hosts = {
        host: host_entry(document(host), answer or ANSWER, "http://m"),
        "w2": host_entry(document("w2"), QUIET, "http://m"),
    }
    of = more.pop("site", None) or site()
    return build(of, hosts, {**CLUSTER, **more.pop("cluster", {})}, NOW, **more)


def written(folder: Path, made: Plan | None = None) -> Path:
    """Write a plan into a folder."""
    path = folder / "x.plan.json"
    path.write_bytes((made or plan()).data)
    return path
