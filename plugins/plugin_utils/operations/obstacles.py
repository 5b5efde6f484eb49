# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What stands in the way of an upgrade: version skew, poor health, pods that cannot move, things that go."""

from __future__ import annotations

import concurrent.futures
import typing as t
from collections.abc import Collection, Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cilium.migration import is_moved
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import etcd
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import cordon
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.drain import (
    Policy,
    pods_of,
    refusals,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.upgrade import live, removed, skew
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.upgrade.skew import Version, parse

if t.TYPE_CHECKING:
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import Context


_PARALLEL = 16


def found(context: Context, now: live.Live, drained: Collection[str] = ()) -> list[str]:
    """Return all of them, one clause each.

    Args:
        context: of the operation.
        now: what runs.
        drained: nodes that will be emptied.
    """
    return [
        *_store(context),
        *_control_planes(context, now),
        *_runtimes(context, now),
        *_pod_networks(context, now),
        *_apis(context, now),
        *_pods(context, drained),
    ]


def _store(context: Context) -> Iterator[str]:
    hosts = context.site.group("etcd")
    members = context.etcd_members()
    for problem in etcd.problems(members):
        yield f"etcd is not healthy: {problem}"
    wanted = parse(str(hosts[0].variables["etcd_version"]))
    running = live.etcd_versions(members)
    if set(running.values()) == {wanted}:
        return
    addresses = [host.address for host in hosts]
    cluster = live.etcd_cluster_version(addresses, context.session.etcd_context())
    yield from skew.etcd_problems(running, cluster, wanted)


def _control_planes(context: Context, now: live.Live) -> Iterator[str]:
    wanted = parse(context.site.kubernetes_version)
    planes = [host.name for host in context.site.group("control_plane")]
    for name in planes:
        node = now.nodes.get(name)
        if node is None:
            yield f"control plane {name} is not in the cluster"
        elif not cordon.is_ready(node):
            yield f"control plane {name} is not Ready"
    servers = {name: version for name, version in now.servers.items() if name in planes}
    if any(version != wanted for version in servers.values()):
        yield from skew.kubernetes_problems(servers, now.kubelets, wanted)
    for host in context.site.hosts.values():
        if host.name in now.nodes:
            problem = skew.kubelet_problem(parse(host.kubernetes_version), wanted)
            if problem:
                yield f"{host.name}: {problem}"


def _runtimes(context: Context, now: live.Live) -> Iterator[str]:
    for name, current in now.runtimes.items():
        host = context.site.hosts.get(name)
        if host is not None:
            problem = skew.containerd_problem(current, parse(str(host.variables["containerd_version"])))
            if problem:
                yield f"{name}: {problem}"


def _pod_networks(context: Context, now: live.Live) -> Iterator[str]:
    moved = [name for name, node in now.nodes.items() if is_moved(node)]
    if moved and context.site.migration_cidr:
        yield (
            f"{', '.join(moved)}: Cilium carries services there while the cluster is being moved, and "
            "kubeadm would bring kube-proxy back; finish the move or let the nodes go back (cni_migrate.yml)"
        )


def _pods(context: Context, drained: Collection[str]) -> Iterator[str]:
    """Say which pods keep a node from being emptied: known now, not when the turn comes to it."""
    api, policy = context.api(), Policy(empty_dir_data=context.site.drain.empty_dir_data)
    with concurrent.futures.ThreadPoolExecutor(_PARALLEL) as pool:
        kept = pool.map(lambda name: refusals(pods_of(api, name), policy), drained)
        for name, reasons in zip(drained, kept, strict=True):
            yield from (f"{name} cannot be emptied: {reason}" for reason in reasons)


def _apis(context: Context, now: live.Live) -> Iterator[str]:
    wanted = parse(context.site.kubernetes_version)
    current = skew.oldest(now.servers.values())
    if current is None or current.line >= wanted.line:
        return
    api = context.api()
    for removal in removed.removed_apis(current.line, wanted.line):
        yield from _objects_of(api, removal)
    yield from deprecated(api.text("/metrics"), wanted)


def _objects_of(api: Api, removal: removed.Removal) -> Iterator[str]:
    """Say which objects are stored in a version of a group that goes away."""
    root = f"/apis/{removal.name}"
    served = api.find(root)
    for resource in (served or {}).get("resources", ()):
        if "/" in resource["name"] or "list" not in resource.get("verbs", ()):
            continue
        try:
            items = api.get(f"{root}/{resource['name']}", limit="1")["items"]
        except ApiError:
            continue
        if items:
            instead = f"; rebuild them in {removal.instead} afterwards" if removal.instead else ""
            what = f"there are {resource['name']} of {removal.name}, which goes away"
            yield f"{what}: delete them before{instead}"


def deprecated(metrics: str, wanted: Version) -> Iterator[str]:
    """Say which APIs that the version does not have any more somebody still asks for.

    Args:
        metrics: of an API server.
        wanted: the version to come.
    """
    for labels in live.deprecated_requests(metrics):
        release = labels.get("removed_release", "")
        parts = release.split(".")
        if len(parts) != 2 or not all(part.isdigit() for part in parts):
            continue
        if (int(parts[0]), int(parts[1])) <= wanted.line:
            name = "/".join(
                filter(None, (labels.get("group"), labels.get("version"), labels.get("resource")))
            )
            yield (
                f"somebody asks for {name}, which is gone in {release}: find out who in the audit log "
                "(k8s.io/deprecated), and change that first; the API server forgets it when it restarts"
            )
