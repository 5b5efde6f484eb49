# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Moving a running cluster from flannel to Cilium, node after node, and back; then the last stage, for good.

What is left to do is read from the cluster: a node's label says where it belongs, the addresses of its pods
whether it has arrived. So a run that was cut off anywhere has fewer nodes left and goes on.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cilium import alone, migration, turn
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cilium.state import GROUP, KINDS
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import node_hosts
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.cordon import cordoned_here, is_ready
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.drain import pods_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import Context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.workers import (
    emptying_steps,
    in_waves,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import day_zero
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import value_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.day_zero import MIGRATION
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Host, Site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError, Step

TO_VARIABLE = "ironspan_pod_network"
ONLY = "cilium-only"
"""Value of ``TO_VARIABLE`` for the last stage, after which there is no way back."""
SECONDS = 60
"""A restart of the agent, of pods that stay on the node, and the proof."""


def steps(context: Context) -> list[Step]:
    """Return what is to be done: for each node that is not there yet, emptying, turning, opening.

    Raises:
        OperationError: the site declares no migration, a node is not Ready, or pods would be lost.
    """
    site = context.site
    to = value_of(context.arguments, TO_VARIABLE)
    way = way_of(site, "cilium" if to == ONLY else to)
    nodes = context.nodes()
    if to == ONLY:
        return _last_stage(context, nodes, way)
    if day_zero.last_stage_begun(site.pki_store):
        raise OperationError(
            "the last stage of the move has begun, and flannel may be gone",
            f"finish it: -e {TO_VARIABLE}={ONLY}",
        )
    due = [host for host in context.hosts or node_hosts(site) if _is_due(context, host, nodes, way)]
    down = [host.name for host in due if not is_ready(nodes[host.name])]
    if down:
        raise OperationError(
            f"not Ready: {', '.join(down)}", "fix them, or take them out first (node_remove.yml)"
        )
    emptying = emptying_steps(context, due, nodes)
    waves = _waves(context, due, nodes)
    return [
        step
        for number, wave in enumerate(waves, start=1)
        for host in wave
        for step in [*emptying[host.name], *_turning(host, way, f"wave {number} of {len(waves)}")]
    ]


def way_of(site: Site, to: str) -> turn.Way:
    """Return where nodes go.

    Args:
        site: from the inventory.
        to: the pod network, ``cilium`` or ``flannel``.

    Raises:
        OperationError: there is no such network, or the site is not being moved.
    """
    if to not in all_layers().pod_networks:
        raise OperationError(
            f"{TO_VARIABLE} is {to}", f"write one of {', '.join((*all_layers().pod_networks, ONLY))}"
        )
    if not site.migration_cidr:
        raise OperationError(
            f"{MIGRATION} is not set, so there is no second pod network",
            "read docs/cilium.md, Moving a cluster: set it, run site.yml, then this",
        )
    network = site.migration_cidr if to == "cilium" else site.pod_cidr
    return turn.Way(to, ipaddress.IPv4Network(network))


def last_stage(api: Api, site: Site) -> list[str]:
    """Return the parts of the last stage that are still to do."""
    return alone.left(api, recorded=day_zero.carried_by(site.pki_store) == "cilium")


def _last_stage(context: Context, nodes: dict[str, Object], way: turn.Way) -> list[Step]:
    site, api = context.site, context.api()
    if context.hosts:
        raise OperationError("the last stage is about the whole cluster", "name no hosts (ironspan_hosts)")
    if not day_zero.made_with(site.pki_store):
        raise OperationError(
            f"nobody has written down which networks the cluster was made with "
            f"({day_zero.file_of(site.pki_store)})",
            "run site.yml, which does",
        )
    parts = last_stage(api, site)
    if parts and (problems := alone.obstacles(api, nodes, way.network)):
        raise OperationError(
            f"flannel may still be needed: {'; '.join(problems)}",
            f"run cni_migrate.yml without {TO_VARIABLE} first; it leaves nodes alone that are done",
        )
    return [_part(part, api, site) for part in parts]


def _part(part: str, api: Api, site: Site) -> Step:
    what, disruption, estimate = {
        alone.ENFORCE: (
            "let Cilium's agents enforce policies, node after node",
            "what policies do not allow is stopped",
            10 * SECONDS,
        ),
        alone.FLANNEL: ("take flannel off all nodes and out of the cluster", "", SECONDS),
        alone.PROXY: ("take kube-proxy out of the cluster", "", 1),
        alone.RECORD: (
            f"remember that the pod network is Cilium with {site.migration_cidr}; then write that into the "
            "inventory and run site.yml",
            "",
            0,
        ),
    }[part]
    counted = _counted(api) if part == alone.ENFORCE else ""
    # The first part is where the way back ends: agents of flannel's pods have no identity to let pass.
    return Step(part, "", what, counted, disruption, estimate, destructive=part != alone.RECORD)


def _counted(api: Api) -> str:
    """Say how many policies come into force."""
    paths = (
        "/apis/networking.k8s.io/v1/networkpolicies",
        *(f"/apis/{GROUP}/v2/{plural}" for plural in KINDS),
    )
    found = [item for path in paths for item in (api.find(path) or {}).get("items") or ()]
    spaces = {item["metadata"].get("namespace", "") for item in found} - {""}
    return f"{len(found)} policies, in {len(spaces)} namespaces"


def _is_due(context: Context, host: Host, nodes: dict[str, Object], way: turn.Way) -> bool:
    node = nodes.get(host.name)
    if node is None:
        return False
    arrived = migration.is_moved(node) == bool(way.label) and not cordoned_here(node)
    return not arrived or bool(turn.stray_pods(pods_of(context.api(), host.name), way.network))


def _waves(context: Context, hosts: Sequence[Host], nodes: dict[str, Object]) -> list[list[Host]]:
    """Divide hosts into waves: workers, which show what goes wrong, then control planes one by one."""
    planes = [host for host in hosts if host.in_group("control_plane")]
    workers = [host for host in hosts if not host.in_group("control_plane")]
    return [*in_waves(context, workers, nodes), *([host] for host in planes)]


def _turning(host: Host, way: turn.Way, wave: str) -> Iterator[Step]:
    carrier = "Cilium, without kube-proxy" if way.label else "kube-proxy"
    yield Step(
        f"to-{way.to}",
        host.name,
        f"let {way.to} carry the pods of {host.name}, with addresses in {way.network}",
        arithmetic=wave,
        disruption=f"pods that stay on the node (DaemonSets) restart; services are carried by {carrier}",
        seconds=SECONDS,
    )
    yield Step("uncordon", host.name, f"open {host.name} once pods on it reach both networks")
