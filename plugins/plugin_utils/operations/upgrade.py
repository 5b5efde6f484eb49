# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Upgrading a running cluster: a snapshot, the etcd members, the control planes, the nodes in waves.

What is to be done is the difference between the inventory's versions and those that run, so a run that was
cut short has fewer steps left and goes on.
"""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import quorum
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import node_hosts
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import cordon
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations import obstacles
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import Context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.waves import waves
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import value_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Host
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError, Step
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.upgrade import drivers, live, skew
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.upgrade.skew import parse

# Measured in the lab on two cores that other work shared; a real host is faster.
SNAPSHOT_SECONDS, ETCD_SECONDS, CONTROL_PLANE_SECONDS, NODE_SECONDS = 10, 20, 120, 60
ADDON_SECONDS = 30


def steps(context: Context) -> list[Step]:
    """Return what is to be done, in order; nothing when all versions are those of the inventory.

    Raises:
        OperationError: a step would break a rule of version skew, etcd is not healthy, or something in
            use does not exist in the new version. All reasons are in the message.
    """
    now = live.look(context.api())
    found = [*_etcd_steps(context), *_control_plane_steps(context, now), *_node_steps(context, now)]
    if not found:
        return []
    drained = dict.fromkeys(step.target for step in found if step.action == "drain")
    problems = obstacles.found(context, now, drained)
    if problems:
        listed = "\n".join(f"- {problem}" for problem in problems)
        raise OperationError(f"this upgrade is not possible now:\n{listed}", "fix these, then run it again")
    member = context.site.group("etcd")[0]
    snapshot = Step(
        "etcd-snapshot",
        "",
        f"take a snapshot of etcd on {member.name}, verify it and keep it there",
        seconds=SNAPSHOT_SECONDS,
    )
    return [snapshot, *found, *_addon_steps(context, now)]


def _etcd_steps(context: Context) -> Iterator[Step]:
    members = context.etcd_members()
    running = live.etcd_versions(members)
    before = quorum.quorum(members)
    for host in context.site.group("etcd"):
        wanted = parse(str(host.variables["etcd_version"]))
        current = running.get(host.name)
        if current == wanted:
            continue
        during = before.restarting()
        lost = "" if during.kept else "the API answers nothing while the only quorum restarts, about 10 s"
        yield Step(
            "upgrade-etcd",
            host.name,
            f"etcd {current or '(does not answer)'} -> {wanted} on {host.name}",
            arithmetic=f"{quorum.arithmetic(before, during)} while it restarts",
            disruption=lost or "a new leader is elected if this one led: writes wait for up to 2 s",
            seconds=ETCD_SECONDS,
        )


def _control_plane_steps(context: Context, now: live.Live) -> Iterator[Step]:
    planes = context.site.group("control_plane")
    wanted = parse(context.site.kubernetes_version)
    versions = dict(now.servers)
    for host in planes:
        current = versions.get(host.name)
        if current != wanted:
            versions[host.name] = wanted
            others = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
            alone = "the API does not answer while it is replaced, about a minute" if len(planes) == 1 else ""
            yield Step(
                "upgrade-control-plane",
                host.name,
                f"Kubernetes {current or '(not there)'} -> {wanted} on {host.name}, by kubeadm",
                arithmetic=f"API servers then: {others}; at most one minor version apart",
                disruption=alone or "connections to this API server are made again to another one",
                seconds=CONTROL_PLANE_SECONDS,
            )
        yield from _host_steps(context, now, host, "")


def _node_steps(context: Context, now: live.Live) -> Iterator[Step]:
    planes = {host.name for host in context.site.group("control_plane")}
    due = [
        host
        for host in node_hosts(context.site)
        if host.name not in planes and any(_host_steps(context, now, host, ""))
    ]
    out = {name for name, node in now.nodes.items() if not cordon.is_in_service(node)}
    groups = waves(due, context.site.drain.max_unavailable, out, node_hosts(context.site))
    for number, names in enumerate(groups, start=1):
        for name in names:
            wave = f"wave {number} of {len(groups)}; "
            yield from _host_steps(context, now, context.site.hosts[name], wave)


def _host_steps(context: Context, now: live.Live, host: Host, wave: str) -> Iterator[Step]:
    """Return the steps of one node; one that is as it should be is opened if an earlier run closed it."""
    if host.name not in now.nodes:
        return
    changes = list(_changes(now, host))
    named = host.name in {named.name for named in context.hosts} or drivers.waits(now.nodes[host.name])
    if not changes and not named:
        if now.closed_here(host.name):
            yield Step("uncordon", host.name, f"uncordon {host.name}, which an earlier run left cordoned")
        return
    server = parse(context.site.kubernetes_version)
    if not changes:
        changes = ["what its document says"]
    if host.in_group("gvisor") or host.in_group("gvisor_gpu"):
        changes.append(f"gVisor {host.variables['gvisor_version']} if it has another")
    if driver := drivers.declared(host):
        keeps = value_of(context.arguments, "ironspan_keep_driver")
        back = "" if keeps else ", and goes back with another if its GPUs fail their preflight then"
        changes.append(f"GPU driver {driver} if it has another, which takes a reboot{back}")
    kubelet = now.kubelets[host.name]
    yield Step(
        "drain",
        host.name,
        f"close {host.name} and evict its pods",
        disruption="pods move, within their disruption budgets",
        seconds=context.site.drain.timeout_seconds // 10,
    )
    yield Step(
        "upgrade-node",
        host.name,
        f"{', '.join(changes)} on {host.name}",
        arithmetic=f"{wave}{skew.kubelet_arithmetic(kubelet, server)}",
        seconds=NODE_SECONDS,
    )
    yield Step("uncordon", host.name, f"open {host.name} once it is Ready")


def _changes(now: live.Live, host: Host) -> Iterator[str]:
    kubelet, wanted = now.kubelets[host.name], parse(host.kubernetes_version)
    if kubelet != wanted:
        yield f"kubelet {kubelet} -> {wanted}"
    runtime, wanted = now.runtimes.get(host.name), parse(str(host.variables["containerd_version"]))
    if runtime != wanted:
        yield f"containerd {runtime or '?'} -> {wanted}"


def _addon_steps(context: Context, now: live.Live) -> Iterator[Step]:
    wanted = context.site.kubernetes_version
    if now.proxy and now.proxy != wanted:
        yield Step(
            "upgrade-kube-proxy",
            "",
            f"kube-proxy {now.proxy} -> {wanted}, by kubeadm with the last control plane",
            disruption="none: rules stay while it restarts, one node after the other",
            seconds=ADDON_SECONDS,
        )
    planes = context.site.group("control_plane")
    coredns = str(planes[0].variables["control_plane_coredns_version"])
    if now.coredns and now.coredns != coredns:
        yield Step(
            "upgrade-coredns",
            "",
            f"CoreDNS {now.coredns} -> {coredns}, its configuration stays",
            seconds=ADDON_SECONDS,
        )
