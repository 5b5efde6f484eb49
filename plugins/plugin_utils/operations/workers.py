# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What adding, removing and replacing workers have in common."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.cordon import is_in_service
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.dead_node import (
    is_silent,
    silent_since,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.drain import Outcome, Policy, preview
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import (
    HOSTS_VARIABLE,
    Context,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.waves import (
    hosts_out_of,
    rack_of,
    waves,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import value_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Host
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError, Step

FORCE_VARIABLE = "ironspan_force_drain"
JOIN_SECONDS = 60
"""Joining took 11 s on booted hosts with their images, preparing a bare one 30 s (lab, two cores)."""
RESET_SECONDS = 15
DRAIN_SECONDS = 45
"""Most pods use their 30 s of grace at most, and something has to take their place first."""
_PARALLEL = 16


def named_workers(context: Context, example: str) -> list[Host]:
    """Return the hosts that the operator named.

    Args:
        context: of the operation.
        example: name of the operation, for the message.

    Raises:
        OperationError: none was named, or one is no worker.
    """
    hosts = context.hosts
    if not hosts:
        raise OperationError(
            "no host is named",
            f"name workers of the inventory: -e {HOSTS_VARIABLE}=rack-2 "
            f"(ironspan apply {example} -e {HOSTS_VARIABLE}=rack-2)",
        )
    insist_on_workers(hosts)
    return hosts


def insist_on_workers(hosts: Sequence[Host]) -> None:
    """Refuse hosts that hold more than pods.

    Raises:
        OperationError: one is a control plane or an etcd member, or no worker at all.
    """
    special = [host.name for host in hosts if host.in_group("control_plane") or host.in_group("etcd")]
    if special:
        raise OperationError(
            f"{', '.join(special)}: control planes and etcd members do not come and go as workers do",
            "use the operations for members (docs/members.md)",
        )
    others = [host.name for host in hosts if not host.in_group("nodes")]
    if others:
        raise OperationError(f"{', '.join(others)}: not in the group nodes", "name workers of the inventory")


def in_waves(context: Context, hosts: Sequence[Host], nodes: Mapping[str, Object]) -> list[list[Host]]:
    """Divide hosts into waves by the state that the cluster is in."""
    site = context.site
    out = [name for name, node in nodes.items() if not is_in_service(node)]
    made = waves(hosts, site.drain.max_unavailable, out, site.group("nodes"))
    return [[site.hosts[name] for name in wave] for wave in made]


def budget(context: Context, host: Host) -> str:
    """Say how many hosts of a host's rack may be out of service."""
    site = context.site
    size = sum(rack_of(other) == rack_of(host) for other in {*site.group("nodes"), host})
    most = hosts_out_of(site.drain.max_unavailable, size)
    where = f"rack {host.rack}" if host.rack else f"hosts without a rack ({host.site_group})"
    return f"{where}: at most {most} of {size} out of service"


def previews(context: Context, hosts: Sequence[Host]) -> dict[str, Outcome]:
    """Return what a drain of each host would do."""
    policy = Policy(empty_dir_data=context.site.drain.empty_dir_data, force=forced(context))
    api = context.api()
    with concurrent.futures.ThreadPoolExecutor(_PARALLEL) as pool:
        found = pool.map(lambda host: preview(api, host.name, policy), hosts)
        return {outcome.node: outcome for outcome in found}


def forced(context: Context) -> bool:
    """Tell whether pods without a controller may be lost."""
    return bool(value_of(context.arguments, FORCE_VARIABLE))


def emptying_steps(
    context: Context, hosts: Sequence[Host], nodes: Mapping[str, Object]
) -> dict[str, list[Step]]:
    """Return how each host is emptied, in the order of the waves; nothing for one that the cluster lacks.

    Raises:
        OperationError: a node holds pods that must not be lost; all of them are named.
    """
    ordered = [host for wave in in_waves(context, hosts, nodes) for host in wave]
    looked = previews(context, [host for host in ordered if host.name in nodes])
    reasons = [
        f"{name}: {reason}"
        for name, outcome in looked.items()
        if outcome.state == "stuck"
        for reason in outcome.reasons
    ]
    if reasons:
        raise OperationError(
            "nothing was begun, because something would be lost:\n" + "\n".join(reasons),
            f"\nMend that, or accept it: -e site_drain_empty_dir_data=delete, -e {FORCE_VARIABLE}=true.",
        )
    steps: dict[str, list[Step]] = {host.name: [] for host in ordered}
    for host in ordered:
        if host.name in nodes:
            steps[host.name].append(_emptying(context, host, nodes[host.name], looked[host.name]))
    return steps


def _emptying(context: Context, host: Host, node: Object, outcome: Outcome) -> Step:
    count = len(outcome.evicted)
    pods = f"{count} {'pod' if count == 1 else 'pods'}"
    if is_silent(node):
        return Step(
            "delete-pods",
            host.name,
            f"delete {pods} of {host.name} from the API, if its kubelet is out of reach "
            f"(it was last heard of before {silent_since(node)})",
            budget(context, host),
            "containers that still run there behind a cut link are not stopped by this",
            DRAIN_SECONDS,
            destructive=True,
        )
    return Step(
        "drain",
        host.name,
        f"close {host.name} for new pods and evict {pods} within their disruption budgets",
        budget(context, host),
        f"{pods} start again on other nodes" if count else "",
        DRAIN_SECONDS,
    )


def delete_step(host: Host) -> Step:
    """Return the step that takes a node out of the cluster."""
    return Step(
        "delete-node",
        host.name,
        f"delete the Node {host.name} once its kubelet has stopped",
        seconds=5,
        destructive=True,
    )


def leaving_steps(context: Context, hosts: Sequence[Host], nodes: Mapping[str, Object]) -> list[Step]:
    """Return how hosts leave the cluster: emptied, reset and forgotten, in the order of the waves.

    A host is reset before its Node is deleted: a kubelet that runs on would be a member that nobody sees.

    Raises:
        OperationError: a node holds pods that must not be lost; all of them are named.
    """
    found: list[Step] = []
    for name, emptying in emptying_steps(context, hosts, nodes).items():
        host = context.site.hosts[name]
        reset = Step(
            "reset",
            name,
            f"take off {name} what ironspan put on it, if it answers",
            seconds=RESET_SECONDS,
            destructive=True,
        )
        found += [*emptying, reset, *([delete_step(host)] if name in nodes else [])]
    return found


def join_step(host: Host) -> Step:
    """Return the step that makes a host a node."""
    return Step(
        "join",
        host.name,
        f"prepare {host.name} at {host.address} and join it to the cluster",
        seconds=JOIN_SECONDS,
    )
