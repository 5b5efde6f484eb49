# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The gate between two steps of an upgrade: is what was done as it should be, and all else still well?"""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Iterator, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import etcd
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import cordon, rollouts
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Host
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.upgrade import drivers, live
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.upgrade.skew import parse

_SHOWN = 8


def etcd_problems(session: Session, changed: Sequence[Host]) -> list[str]:
    """Return what is wrong with etcd after members were changed."""
    addresses = {host.name: host.address for host in session.site.group("etcd")}
    members = etcd.ask_members(addresses, session.etcd_context())
    problems = etcd.problems(members)
    running = live.etcd_versions(members)
    for host in changed:
        wanted = parse(str(host.variables["etcd_version"]))
        if host.name in running and running[host.name] != wanted:
            problems.append(f"{host.name} runs etcd {running[host.name]}, wanted {wanted}")
    return problems


def control_plane_problems(session: Session, changed: Sequence[Host]) -> list[str]:
    """Return what is wrong with control planes that were changed: each API server is asked itself."""
    problems = []
    for host in changed:
        api = session.api_of(host)
        try:
            version = str(api.get("/version")["gitVersion"]).removeprefix("v")
            if version != session.site.kubernetes_version:
                problems.append(
                    f"the API server of {host.name} is {version}, wanted {session.site.kubernetes_version}"
                )
            api.request("GET", "/readyz", timeout=5, patience=0)
        except ClusterError as error:
            problems.append(f"the API server of {host.name} is not ready: {error}")
    return problems


def node_problems(
    api: Api, changed: Sequence[Host], boots: Mapping[str, str], failed: Collection[str] = ()
) -> list[str]:
    """Return what is wrong with nodes that were changed, and with disruption budgets anywhere.

    A Node stays Ready for most of a minute while its host is away, so only the boot that the kubelet reports
    proves that it is back. What a host says of its boot decides about that host alone.

    Args:
        api: the API.
        changed: hosts of the wave.
        boots: boot IDs as the hosts have them now, by their names; hosts that are not in it may have any.
        failed: hosts whose GPUs have failed their preflight, which is known and not said again.
    """
    now = live.look(api)
    problems: list[str] = []
    for host in changed:
        node = now.nodes.get(host.name)
        if node is None:
            problems.append(f"{host.name} is not in the cluster")
            continue
        if host.name in boots and cordon.boot_of(node) != boots[host.name]:
            problems.append(f"{host.name} was rebooted, and its kubelet has not reported since")
        problems += () if host.name in failed else _preflight(host, node)
        if not cordon.is_ready(node):
            reason = str(cordon.ready_condition(node).get("message", "its kubelet has not reported"))
            problems.append(f"{host.name} is not Ready: {reason}")
        for what, current, wanted in (
            ("kubelet", now.kubelets[host.name], parse(host.kubernetes_version)),
            ("containerd", now.runtimes.get(host.name), parse(str(host.variables["containerd_version"]))),
        ):
            if current != wanted:
                problems.append(f"{host.name} runs {what} {current}, wanted {wanted}")
    problems += _system_pods(api, {host.name for host in changed})
    return [*problems, *budget_problems(api.get("/apis/policy/v1/poddisruptionbudgets")["items"])]


def failures(api: Api, names: Collection[str]) -> Iterator[str]:
    """Say why GPUs of these nodes failed their preflight."""
    for name in names:
        said = drivers.condition_of(api.get(cordon.node_path(name))).get("message")
        yield f"the GPUs of {name} failed their preflight: {said or 'no reason given'}"


def _preflight(host: Host, node: Object) -> Iterator[str]:
    """Say what is wrong with the preflight of a node's GPUs; it belongs to a boot and a driver."""
    found = drivers.condition_of(node)
    passed = found.get("status") == "True"
    # The agent may not have said yet that its verdict is of the boot before, or anything at all.
    outdated = passed and drivers.is_outdated(node)
    if (not found and not drivers.is_new(node)) or (passed and not outdated):
        return
    said = "" if outdated else str(found.get("message", ""))
    said = said or ("no reason given" if found else "the agent has said nothing yet")
    if found.get("status") == "False":
        yield f"the GPUs of {host.name} failed their preflight: {said}"
    elif host.variables.get("gpu_repair_enabled") and host.variables.get("gpu_repair_mode") != "watch":
        yield f"the GPUs of {host.name} have not passed their preflight yet: {said}"


def _system_pods(api: Api, nodes: set[str]) -> Iterator[str]:
    """Say which pods of kube-system on these nodes do not run."""
    wrong = [
        f"{pod['metadata']['name']} on {pod['spec']['nodeName']}"
        for pod in api.get("/api/v1/namespaces/kube-system/pods")["items"]
        if pod["spec"].get("nodeName") in nodes and not _is_up(pod)
    ]
    if wrong:
        yield f"not ready: {', '.join(wrong[:_SHOWN])}{' and more' if len(wrong) > _SHOWN else ''}"


def _is_up(pod: Object) -> bool:
    # One that has ended, or was evicted, is nobody's concern: its controller has made another.
    if pod["metadata"].get("deletionTimestamp") or pod["status"].get("phase") in ("Succeeded", "Failed"):
        return True
    conditions = pod["status"].get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def budget_problems(budgets: Sequence[Object]) -> Iterator[str]:
    """Say which disruption budgets are broken: fewer pods are healthy than they insist on."""
    for budget in budgets:
        status: dict[str, t.Any] = budget.get("status") or {}
        healthy, desired = int(status.get("currentHealthy", 0)), int(status.get("desiredHealthy", 0))
        if healthy < desired and int(status.get("expectedPods", 0)):
            name = f"{budget['metadata']['namespace']}/{budget['metadata']['name']}"
            yield f"disruption budget {name}: {healthy} pods are healthy, it insists on {desired}"


def rollout_problems(api: Api, version: str, coredns: str) -> list[str]:
    """Return what is wrong with kube-proxy and CoreDNS once all control planes are done."""
    problems = []
    now = live.look(api)
    for what, current, wanted in (("kube-proxy", now.proxy, version), ("CoreDNS", now.coredns, coredns)):
        if current and current != wanted:
            problems.append(f"{what} is {current}, wanted {wanted}")
    for path in ("daemonsets/kube-proxy", "deployments/coredns"):
        item = api.find(f"/apis/apps/v1/namespaces/kube-system/{path}")
        if item is not None and not rollouts.is_done(item):
            problems.append(f"{path} is still being replaced")
    return problems
