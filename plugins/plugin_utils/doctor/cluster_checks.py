# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is wrong in the cluster, from the API's answers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import node_hosts
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.findings import (
    NOTICE,
    PROBLEM,
    Content,
    Evidence,
    Finding,
    apply_command,
    names,
    together,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.lost import fix
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.network_checks import (
    SLOW_ANSWER_MS,
    VERY_SLOW_ANSWER_MS,
)

PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
KUBELET_SKEW = 3
"""Kubernetes' version skew policy: a kubelet may be three minor versions older than the API, never newer."""
RESTLESS = 10
"""Restarts of a container of the system; a few happen whenever control planes are changed."""


def api(evidence: Evidence) -> Iterator[Finding]:
    """Readiness, and how long answers take from here."""
    answers = evidence.api
    if answers["ready"] != "ok":
        broken = re.findall(r"\[-\](\S+)", answers["ready"]) or [answers["ready"].strip()[:200]]
        leaders = [host.name for host in evidence.site.group("control_plane")]
        yield Finding(
            PROBLEM,
            f"the API is not ready: {', '.join(broken)}",
            f"ssh {leaders[0]} journalctl -u kubelet -n 100; then {fix(evidence, leaders)}",
        )
    took = answers["milliseconds"]
    if took >= SLOW_ANSWER_MS:
        level = PROBLEM if took >= VERY_SLOW_ANSWER_MS else NOTICE
        yield Finding(
            level,
            f"the API takes {took:.0f} ms for a small answer (median)",
            "check the WAN link, then load and disks of the control planes and etcd",
        )


def versions(evidence: Evidence) -> Iterator[Finding]:
    """Versions that differ from the inventory, or that do not go together."""
    site = evidence.site
    server = str(evidence.api["version"]).removeprefix("v")
    if server != site.kubernetes_version:
        what = f"the API is version {server}, the inventory says {site.kubernetes_version}"
        yield Finding(PROBLEM, what, "ironspan plan upgrade")
    declared = {host.name: host for host in node_hosts(site)}
    kubelets: list[tuple[str, str]] = []
    skewed: list[tuple[str, str]] = []
    runtimes: list[tuple[str, str]] = []
    for node in evidence.api["nodes"]:
        name, info = node["metadata"]["name"], node["status"]["nodeInfo"]
        kubelet = str(info["kubeletVersion"]).removeprefix("v")
        behind = _minor(server) - _minor(kubelet)
        if behind < 0 or behind > KUBELET_SKEW:
            relation = "newer than" if behind < 0 else f"{behind} minor versions older than"
            skewed.append((name, f"kubelet {kubelet} is {relation} the API ({server})"))
        host = declared.get(name)
        if host is None:
            continue
        if kubelet != host.kubernetes_version:
            kubelets.append((name, f"runs kubelet {kubelet}, the inventory says {host.kubernetes_version}"))
        wanted = str(host.variables.get("containerd_version") or "")
        runtime = str(info["containerRuntimeVersion"]).removeprefix("containerd://").removeprefix("v")
        # While containerd is down its version is unknown; that the node is not Ready is another check's.
        if wanted and runtime not in (wanted, "Unknown"):
            runtimes.append((name, f"runs containerd {runtime}, the inventory says {wanted}"))
    yield from together(PROBLEM, skewed, lambda _hosts: "ironspan plan upgrade")
    yield from together(PROBLEM, kubelets, lambda _hosts: "ironspan plan upgrade")
    yield from together(PROBLEM, runtimes, lambda hosts: apply_command(site, hosts))


def _minor(version: str) -> int:
    match = re.match(r"\d+\.(\d+)", version)
    return int(match[1]) if match else 0


def nodes(evidence: Evidence) -> Iterator[Finding]:
    """Nodes that are missing, unknown, not Ready, under pressure, or closed."""
    site = evidence.site
    declared = [host.name for host in node_hosts(site)]
    found = {node["metadata"]["name"]: node for node in evidence.api["nodes"]}
    missing = tuple(name for name in declared if name not in found)
    workers = all(not site.hosts[name].in_group("control_plane") for name in missing)
    if missing:
        adding = f"ironspan apply node_add -e ironspan_hosts={','.join(missing)}"
        remedy = adding if workers and not site.plan.approvals else apply_command(site, missing)
        yield Finding(PROBLEM, "is not a node of the cluster", remedy, missing)
    strangers = tuple(sorted(found.keys() - set(declared)))
    if strangers:
        remedy = f"list it in the inventory, or kubectl delete node {strangers[0]}"
        yield Finding(PROBLEM, "is a node that the inventory does not have", remedy, strangers)
    unready: list[tuple[str, str]] = []
    pressed: list[tuple[str, str]] = []
    closed: list[tuple[str, str]] = []
    for name, node in found.items():
        conditions = {entry["type"]: entry for entry in node["status"].get("conditions", ())}
        ready: Mapping[str, str] = conditions.get("Ready", {})
        if ready.get("status") != "True":
            why = ready.get("message") or ready.get("reason") or "its kubelet has not reported"
            unready.append((name, f"is not Ready: {why}"))
        for kind in PRESSURES:
            if conditions.get(kind, {}).get("status") == "True":
                pressed.append((name, f"has {kind}: {conditions[kind].get('message', '')}".rstrip(": ")))
        if node.get("spec", {}).get("unschedulable"):
            closed.append((name, "is closed for new pods (cordoned)"))
    yield from together(
        PROBLEM,
        unready,
        lambda hosts: (
            f"{apply_command(site, hosts)}; if it stays: ssh {hosts[0]} journalctl -u kubelet -n 100"
        ),
    )
    yield from together(PROBLEM, pressed, lambda hosts: f"kubectl describe node {hosts[0]}")
    yield from together(
        NOTICE, closed, lambda hosts: f"kubectl uncordon {' '.join(hosts)}, when its work is done"
    )


def requests(evidence: Evidence) -> Iterator[Finding]:
    """Certificate requests that nobody has decided about."""
    waiting: dict[str, list[str]] = {}
    for request in evidence.api["requests"]:
        if not request.get("status", {}).get("conditions"):
            user = str(request["spec"].get("username", "")).removeprefix("system:node:")
            waiting.setdefault(user, []).append(request["metadata"]["name"])
    known = tuple(name for name in waiting if name in evidence.site.hosts)
    if known:
        yield Finding(
            PROBLEM,
            "waits for a certificate: its request is not decided",
            "ironspan apply approve_csrs: approves what matches the inventory, denies all others",
            known,
        )
    others = sorted(waiting.keys() - set(known))
    if others:
        what = f"certificate requests of {names(others)}, who are no hosts of the inventory, are not decided"
        first = waiting[others[0]][0]
        yield Finding(NOTICE, what, f"kubectl describe csr {first}, then kubectl certificate deny {first}")


def system_pods(evidence: Evidence) -> Iterator[Finding]:
    """Pods of the system that do not run."""
    broken: list[tuple[str, str]] = []
    restless: list[tuple[str, str]] = []
    example: dict[str, Content] = {}
    for pod in evidence.api["pods"]:
        node, kind = str(pod["spec"].get("nodeName") or ""), _kind(pod)
        why = _trouble(pod)
        if why:
            what = f"{kind} does not run: {why}"
            broken.append((node, what))
            example.setdefault(what, pod)
            continue
        restarts = sum(entry["restartCount"] for entry in pod["status"].get("containerStatuses", ()))
        if restarts >= RESTLESS:
            what = f"{kind} was restarted {restarts} times"
            restless.append((node, what))
            example.setdefault(what, pod)
    for level, found in ((PROBLEM, broken), (NOTICE, restless)):
        for finding in together(level, found, lambda _hosts: ""):
            pod = example[finding.what]["metadata"]
            remedy = f"kubectl -n {pod['namespace']} describe pod {pod['name']}"
            hosts = tuple(name for name in finding.hosts if name)
            yield finding._replace(remedy=remedy, hosts=hosts)
    yield from _names_on_one_host(evidence)


def _names_on_one_host(evidence: Evidence) -> Iterator[Finding]:
    """Pods stay where they started: all of CoreDNS may be on one host, though others are there by now."""
    places = [
        str(pod["spec"].get("nodeName"))
        for pod in evidence.api["pods"]
        if pod["metadata"].get("labels", {}).get("k8s-app") == "kube-dns" and not _trouble(pod)
    ]
    usable = [
        node
        for node in evidence.api["nodes"]
        if not node.get("spec", {}).get("unschedulable")
        and any(
            entry["type"] == "Ready" and entry["status"] == "True" for entry in node["status"]["conditions"]
        )
    ]
    if len(places) > 1 and len(set(places)) == 1 and len(usable) > 1:
        yield Finding(
            NOTICE,
            f"runs all {len(places)} CoreDNS pods: without this host nothing resolves",
            "kubectl -n kube-system rollout restart deployment/coredns",
            (places[0],),
        )


def _kind(pod: Content) -> str:
    """Return what a pod is one of."""
    labels = pod["metadata"].get("labels", {})
    for label in ("k8s-app", "component", "app"):
        if labels.get(label):
            return str(labels[label])
    return str(pod["metadata"]["name"])


def _trouble(pod: Content) -> str:
    """Say why a pod is not well, "" when it is."""
    status = pod["status"]
    if status.get("phase") == "Succeeded" or pod["metadata"].get("deletionTimestamp"):
        return ""
    for entry in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        waiting = entry.get("state", {}).get("waiting")
        if waiting:
            return str(waiting.get("reason") or "waiting")
    if status.get("phase") == "Failed":
        return str(status.get("reason") or "it failed")
    conditions = {entry["type"]: entry for entry in status.get("conditions", ())}
    if conditions.get("PodScheduled", {}).get("status") == "False":
        return f"no node takes it ({conditions['PodScheduled'].get('message', '')})"
    if status.get("phase") != "Running":
        return str(status.get("phase"))
    if conditions.get("Ready", {}).get("status") == "False":
        return "it is not ready"
    return ""


def lock(evidence: Evidence) -> Iterator[Finding]:
    """A run at work explains much of the rest."""
    holder = evidence.controller.lock_holder
    if holder:
        what = f"a run is changing this site now: {holder}"
        yield Finding(NOTICE, what, "wait until it has ended, and run the doctor again")
