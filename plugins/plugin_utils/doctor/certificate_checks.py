# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Certificates that have ended or will soon, on hosts and in the PKI store."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.findings import (
    NOTICE,
    PROBLEM,
    Evidence,
    Finding,
    operation,
    together,
)

DAY_S = 86400
LEAF_PROBLEM_DAYS, LEAF_NOTICE_DAYS = 7, 30
KUBELET_NOTICE_DAYS = 14
"""The kubelet renews its own in the last 10 to 30 % of their life: of a year, 36 days before the end at the
latest (client-go, certificate manager); two weeks before the end something is wrong."""
AUTHORITY_PROBLEM_DAYS, AUTHORITY_NOTICE_DAYS = 90, 365
"""A change of authority has several stages, with everything restarted in between."""
RENEW = "certs_renew"
ROTATE = "ca_rotate -e ironspan_authority={name} -e ironspan_authority_stage={stage}"


def certificates(evidence: Evidence) -> Iterator[Finding]:
    """Certificates on hosts."""
    problems: list[tuple[str, str]] = []
    notices: list[tuple[str, str]] = []
    kubelets: list[tuple[str, str]] = []
    unreadable: list[tuple[str, str]] = []
    for name, answer in evidence.answers():
        for entry in answer["certificates"]:
            path = entry["path"]
            if "error" in entry:
                unreadable.append((name, f"{path} is no certificate: {entry['error']}"))
                continue
            days = (entry["not_after"] - evidence.now) / DAY_S
            if path.endswith(("ca.crt", "-ca.crt")):
                # The store has it too, and is where it is replaced; only a copy that ended is news.
                if days <= 0:
                    problems.append((name, f"{path} {ends(days)}"))
            elif path.startswith("/var/lib/kubelet/"):
                if days < KUBELET_NOTICE_DAYS:
                    kubelets.append((name, f"{path} {ends(days)}, and the kubelet did not renew it"))
            elif days < LEAF_PROBLEM_DAYS:
                problems.append((name, f"{path} {ends(days)}"))
            elif days < LEAF_NOTICE_DAYS:
                notices.append((name, f"{path} {ends(days)}"))
    renew = operation(evidence.site, RENEW)
    yield from together(PROBLEM, unreadable, lambda _hosts: renew)
    yield from together(PROBLEM, problems, lambda _hosts: renew)
    yield from together(
        PROBLEM, kubelets, lambda hosts: f"ssh {hosts[0]} systemctl restart kubelet; then ironspan doctor"
    )
    yield from together(NOTICE, notices, lambda _hosts: renew)


def authorities(evidence: Evidence) -> Iterator[Finding]:
    """Certificate authorities of the PKI store."""
    for name, not_after in evidence.controller.authorities.items():
        days = (not_after - evidence.now) / DAY_S
        if days < AUTHORITY_NOTICE_DAYS:
            level = PROBLEM if days < AUTHORITY_PROBLEM_DAYS else NOTICE
            stage = "next" if evidence.controller.rotating.get(name) else "trust"
            remedy = f"ironspan plan {ROTATE.format(name=name, stage=stage)}"
            yield Finding(level, f"the authority {name} {ends(days)}", remedy)


def ends(days: float) -> str:
    """Return when something ends, as a clause."""
    if days <= 0:
        return f"ended {-days:.0f} days ago"
    return f"ends in {days:.0f} days"
