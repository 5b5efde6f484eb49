# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""docs/faults.md against the doctor: of each fault it says what fixes it, or here is why it sees nothing."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor import table
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.page import page

from tests.support.faults import promised
from tests.unit.doctor.samples import DAY, GIB, NOW, Change, Draft, member

PAST = int(NOW) - 2 * DAY
PLAN = {"digest": "ab" * 32, "file": "/state/plan.json", "begun": int(NOW) - 600, "expires": int(NOW) + 60}


def no_api(reason: str) -> Change:
    return lambda d: d.api.update(error=f"https://api:6443 cannot be reached: {reason}")


def known(**values: t.Any) -> Change:
    def change(d: Draft) -> None:
        d.controller = d.controller.__class__(authorities=d.controller.authorities, **values)

    return change


def host(**values: t.Any) -> Change:
    return lambda d: d.hosts["rack-1"].update(values)


def disk(**values: t.Any) -> Change:
    return lambda d: d.hosts["rack-1"]["disks"][0].update(values)


def expired(name: str, path: str) -> Change:
    return lambda d: d.hosts[name]["certificates"].append({"path": path, "not_after": PAST})


def missing(d: Draft) -> None:
    d.api["nodes"].pop()


def version(d: Draft) -> None:
    d.api["nodes"][1]["status"]["nodeInfo"]["kubeletVersion"] = "v1.36.3"


def learner(d: Draft) -> None:
    d.members = [member(learner=True)]


def silent(d: Draft) -> None:
    d.members = [member(error="refused", healthy=False)]


def without_data(d: Draft) -> None:
    silent(d)
    d.hosts["az-1"]["drift"]["pending"] = [{"resource": "etcd/config", "needs": "membership:etcd"}]
    d.api.update(error="https://api:6443 cannot be reached: refused")


def closed(d: Draft) -> None:
    d.api["nodes"][1]["spec"]["unschedulable"] = True


def torn(d: Draft) -> None:
    d.hosts["rack-1"]["drift"]["changes"] = [{"resource": "containerd/program"}]


FRONT = (
    "api-down",
    "check the load balancer, the link and the API servers: ironspan apply --limit control_plane",
)
SPACE = ("disk", "ssh rack-1 du")
NOW_OVER = "it is over when the run is: running it again is what the run says"
FETCHED = (torn, "drift", "ironspan apply --limit rack-1")
"""The run named the mirror and what is wrong with it. What it could not install still differs; the same run
again, after the mirror was fixed, fixes that."""

FAULTS: dict[str, str | tuple[Change, str, str]] = {
    "second-run": (known(lock_holder="process 7 on here"), "run", "wait until it has ended"),
    "killed": (host(transaction={"seconds": 60, "steps": 4, "plan": ""}), "transaction",
               "ironspan apply --limit rack-1; it resumes"),
    "run-cut-off": (known(open_plans=[PLAN]), "plans", "ironspan apply /state/plan.json; it resumes"),
    "orphan": NOW_OVER,
    **{name: (no_api(reason), *FRONT) for name, reason in {
        "api-refused": "Connection refused", "api-reset": "reset", "api-slow": "timed out",
        "api-busy": "HTTP 429", "api-error": "HTTP 500", "api-truncated": "no JSON",
        "api-stranger": "It is not this site's API server", "api-not-yet": "is not yet valid",
    }.items()},
    "api-not-ready": (lambda d: d.api.update(ready="[-]etcd failed"), "api", "journalctl -u kubelet"),
    "api-expired": (expired("az-1", "/etc/kubernetes/pki/apiserver.crt"), "certificates",
                    "ironspan apply certs_renew"),
    "api-clock": (host(skew_s=-3600.0), "clock", "timedatectl set-ntp true"),
    "api-lies": "what it says is not taken for a fact: an approval that is none is waited for, and named",
    "host-down": (lambda d: d.hosts.update({"rack-1": {"unreachable": "timed out"}}), "reachable",
                  "check power, link, SSH address"),
    **dict.fromkeys(("disk-full", "image-disk", "disk-fills", "journal-full"),
                    (disk(free_bytes=GIB), *SPACE)),
    "disk-read-only": (disk(read_only=True), "disk", "replace the disk if it fails"),
    **dict.fromkeys(("clock", "join-clock"), (host(skew_s=3600.0), "clock", "timedatectl set-ntp true")),
    **dict.fromkeys(("join-certificate", "join-cut"), (missing, "nodes",
                                                 "ironspan apply node_add -e ironspan_hosts=rack-1")),
    "admin-expired": (expired("az-1", "/etc/kubernetes/admin.conf"), "certificates",
                      "ironspan apply certs_renew"),
    "etcd-expired": (expired("az-1", "/etc/etcd/pki/server.crt"), "certificates",
                     "ironspan apply certs_renew"),
    **dict.fromkeys(("etcd-disk-missing", "etcd-disk-foreign"),
                    (silent, "etcd", "ironspan apply --limit az-1")),
    "etcd-disk-blank": (without_data, "etcd", "ironspan apply etcd_restore --allow-destructive"),
    "etcd-disk-slow": (lambda d: d.fsync.update({"az-1": 0.4}), "latency", "give etcd a faster disk"),
    **dict.fromkeys(("drain-cut", "drain-stuck"), (closed, "nodes", "kubectl uncordon rack-1")),
    "member-cut": (learner, "etcd", "ironspan apply --limit az-1"),
    "upgrade-lost": (version, "versions", "ironspan plan upgrade"),
    **dict.fromkeys(("mirror-wrong", "mirror-html", "mirror-image", "image-unsigned", "mirror-missing",
                     "mirror-short", "mirror-slow", "mirror-down"), FETCHED),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(promised()))
def test_the_doctor_leads_out_of_every_fault(name: str) -> None:
    assert name in FAULTS, "say here what the doctor finds of this fault, or why it finds nothing"
    row = FAULTS[name]
    if isinstance(row, str):
        return
    change, check, remedy = row
    draft = Draft()
    change(draft)
    report = table.examine(draft.evidence(), "2026-11-22T00:00:00+00:00", 1.0)
    found = {one["name"]: one["findings"] for one in report["checks"]}
    assert any(remedy in finding["remedy"] for finding in found[check]), page(report)


def test_no_row_is_about_a_fault_that_is_no_more() -> None:
    assert FAULTS.keys() <= promised().keys()
