# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""All checks, in the order of the page, and the report they make."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterable

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor import (
    alert_checks,
    attestation_checks,
    certificate_checks,
    cluster_checks,
    encryption_checks,
    estate_checks,
    etcd_checks,
    host_checks,
    ironic_checks,
    network_checks,
    plan_checks,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.findings import (
    NOTICE,
    PROBLEM,
    Content,
    Evidence,
    Finding,
    apply_command,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.lost import fix, lost

SCHEMA = 1
HEALTHY, UNHEALTHY, NOTHING_ASKED = 0, 1, 4
"""Exit codes; 4 also is what other commands say when no host answers."""
HOSTS, ANSWERS, API, ETCD, CONTROLLER = "hosts", "answers", "api", "etcd", "controller"


class Check(t.NamedTuple):
    """One check.

    Args:
        name: short, the same in every report.
        source: whom it needs an answer of.
        reads: what it looks at, for the manual and the report.
        look: returns what it finds.
    """

    name: str
    source: str
    reads: str
    look: Callable[[Evidence], Iterable[Finding]]


CHECKS: tuple[Check, ...] = (
    Check("run", CONTROLLER, "the lock of the site", cluster_checks.lock),
    Check("plans", CONTROLLER, "plans kept on this controller", plan_checks.plans),
    Check("authorities", CONTROLLER, "the PKI store", certificate_checks.authorities),
    Check("encryption", CONTROLLER, "how the PKI store says secrets are stored", encryption_checks.secrets),
    Check("attestation", CONTROLLER, "what is recorded of workers' TPMs", attestation_checks.tpms),
    Check("ironic", CONTROLLER, "conductors and servers of the site's own Ironic", ironic_checks.ironic),
    Check("alerts", CONTROLLER, "the program that launches jobs for alerts", alert_checks.alerts),
    Check(
        "estate",
        CONTROLLER,
        "what deploying the estate in Azure would change, roles that end, quota",
        estate_checks.estate,
    ),
    Check("reachable", HOSTS, "SSH", host_checks.reachable),
    Check("clock", ANSWERS, "the host's clock against the controller's", host_checks.clock),
    Check("disk", ANSWERS, "file systems: space, inodes, read-only", host_checks.disks),
    Check("services", ANSWERS, "systemd", host_checks.services),
    Check("transaction", ANSWERS, "the engine's journal", host_checks.transactions),
    Check("drift", ANSWERS, "the whole document, as site.yml compares it", host_checks.drift),
    Check(
        "certificates", ANSWERS, "certificates in /etc and of the kubelet", certificate_checks.certificates
    ),
    Check("egress", ANSWERS, "the table that holds pods back, and its counters", host_checks.egress),
    Check("slots", ANSWERS, "which root of a disk with two runs, and whether one failed", host_checks.slots),
    Check("reboot", ANSWERS, "/run/reboot-required", host_checks.reboots),
    Check("mtu", ANSWERS, "ICMP echoes with 'don't fragment' to the other side", network_checks.mtu),
    Check("dns", ANSWERS, "the cluster's DNS service, asked from nodes", network_checks.dns),
    Check(
        "endpoints", ANSWERS, "names of private endpoints, asked from hosts in Azure", estate_checks.endpoints
    ),
    Check("link", ANSWERS, "connections from nodes to the API", network_checks.api_from_hosts),
    Check("etcd", ETCD, "every member's status", etcd_checks.health),
    Check("alarms", ETCD, "every member's alarms", etcd_checks.alarms),
    Check("space", ETCD, "size, size in use and quota of every member", etcd_checks.space),
    Check("latency", ETCD, "every member's histogram of fdatasync", etcd_checks.latency),
    Check("events", ETCD, "every member's status of the etcd for events", etcd_checks.events),
    Check("api", API, "/readyz and five small requests", cluster_checks.api),
    Check("versions", API, "API, kubelets and containerd against the inventory", cluster_checks.versions),
    Check("nodes", API, "nodes and their conditions", cluster_checks.nodes),
    Check("requests", API, "certificate signing requests", cluster_checks.requests),
    Check("pods", API, "pods of kube-system and kube-flannel", cluster_checks.system_pods),
)


def silence(evidence: Evidence, source: str) -> str:
    """Return why a source gave no answer at all, empty when it gave one."""
    if source == HOSTS and not evidence.hosts:
        return "no host was asked"
    if source == ANSWERS and not any(True for _ in evidence.answers()):
        return "no host answered"
    if source in (API, ETCD) and not evidence.controller.built:
        return "this site was not built yet"
    if source == ETCD:
        return evidence.etcd_error
    if source == API:
        return str(evidence.api.get("error", "" if evidence.api else "it was not asked"))
    return ""


def examine(evidence: Evidence, started: str, seconds: float) -> Content:
    """Run all checks.

    Args:
        evidence: everything that was asked.
        started: when, ISO 8601.
        seconds: how long asking took.

    Returns:
        The report: schema, verdict, exit code, and for every check what it found.
    """
    checks = []
    for check in CHECKS:
        because = silence(evidence, check.source)
        findings = [] if because else list(check.look(evidence))
        checks.append(
            {
                "name": check.name,
                "reads": check.reads,
                "verdict": "not asked" if because else _verdict(findings),
                "because": because,
                "findings": [{**finding._asdict(), "hosts": list(finding.hosts)} for finding in findings],
            }
        )
    if evidence.controller.built and evidence.api.get("error"):
        remedy = f"check the load balancer, the link and the API servers: {_api_remedy(evidence)}"
        checks.append(_down("api-down", f"the API gives no answer: {evidence.api['error']}", remedy))
    if evidence.controller.built and evidence.etcd_error:
        checks.append(_down("store-down", f"the store: {evidence.etcd_error}", _STORE_REMEDY))
    answered = sum(1 for _ in evidence.answers())
    silent = "error" in evidence.api and all(member.error for member in evidence.members)
    nobody = not answered and (silent or not evidence.controller.built)
    unwell = any(check["verdict"] == PROBLEM for check in checks)
    return {
        "schema": SCHEMA,
        "kind": "doctor",
        "site": evidence.site.name,
        "started": started,
        "seconds": round(seconds, 1),
        "healthy": not unwell and not nobody,
        "exit_code": NOTHING_ASKED if nobody else UNHEALTHY if unwell else HEALTHY,
        "asked": {
            "hosts": len(evidence.hosts),
            "hosts_answered": answered,
            "api": not silence(evidence, API),
            "etcd": not silence(evidence, ETCD),
        },
        "notes": _notes(evidence),
        "checks": checks,
    }


_STORE_REMEDY = (
    "give this controller the PKI store and its key (site_pki_store, site_pki_key_file); then ironspan doctor"
)


def _api_remedy(evidence: Evidence) -> str:
    """Return what brings the API back: where etcd has lost its data, that comes first."""
    found = lost(evidence)
    if found.etcd or found.unsure:
        return f"etcd comes first: {fix(evidence, found.hosts)}"
    return apply_command(evidence.site, ["control_plane", "haproxy"])


def _down(name: str, what: str, remedy: str) -> Content:
    finding = {"level": PROBLEM, "what": what, "remedy": remedy, "hosts": []}
    return {"name": name, "reads": "", "verdict": PROBLEM, "because": "", "findings": [finding]}


def _verdict(findings: list[Finding]) -> str:
    levels = {finding.level for finding in findings}
    return PROBLEM if PROBLEM in levels else NOTICE if levels else "ok"


def _notes(evidence: Evidence) -> list[str]:
    notes = []
    if not evidence.controller.built:
        notes.append("This site was not built yet (its PKI store does not exist): hosts are looked at only.")
    if evidence.controller.no_documents:
        notes.append(f"Hosts were not compared with their documents: {evidence.controller.no_documents}")
    return notes
