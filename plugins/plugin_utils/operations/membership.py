# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What adding, removing and replacing etcd members and control planes have in common."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.etcd_cluster import (
    EtcdCluster,
    belongs_to,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.members import Listed
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.quorum import Quorum, insist
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import (
    HOSTS_VARIABLE,
    Context,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Host, Site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError, Step

GROUPS = ("etcd", "control_plane")
LEARNER_SECONDS = 15
"""A member without data starts in 3 s in the lab; a large store takes as long as its snapshot."""
CONTROL_PLANE_SECONDS = 45
"""A join takes 20 to 30 s in the lab, and so does an API server that takes over another configuration."""
RESET_SECONDS = 15
BACKUP_SECONDS = 5
EVENTS_SECONDS = 5


def named_members(context: Context, example: str) -> list[Host]:
    """Return the hosts that the operator named.

    Raises:
        OperationError: none was named, or one is neither an etcd member nor a control plane.
    """
    hosts = context.hosts
    if not hosts:
        raise OperationError(
            "no host is named",
            "name hosts of the groups etcd or control_plane "
            f"(ironspan apply {example} -e {HOSTS_VARIABLE}=az-2)",
        )
    others = [host.name for host in hosts if not any(host.in_group(group) for group in GROUPS)]
    if others:
        raise OperationError(
            f"{', '.join(others)}: neither in the group etcd nor in control_plane",
            "use node_add, node_remove or node_replace for workers",
        )
    return hosts


class Members:
    """etcd's members as they are, and as the steps worked out so far leave them.

    Args:
        session: the site's cluster.

    Raises:
        OperationError: nobody answers with a quorum.
    """

    def __init__(self, session: Session) -> None:
        store = EtcdCluster(session)
        try:
            answers, self.count = store.settled()
            if not self.count.kept:
                insist(self.count, self.count, "change the members")
            asked = store.membership([member.name for member in answers if not member.error])
            self.listed: list[Listed] = asked.listed()
        except ClusterError as error:
            raise OperationError(error.message, error.remedy) from None

    def entry(self, host: Host) -> Listed | None:
        """Return a host's entry, None if etcd does not list it."""
        return belongs_to(self.listed, host)

    def add(self, host: Host) -> list[Step]:
        """Return the steps that make a host a member."""
        entry = self.entry(host)
        if entry is not None and not entry.learner and not entry.started:
            # One of the first members: listed with a vote, and never started.
            numbers = str(self.count)
        else:
            after = self.count.promoting()
            numbers = self._insist(after, f"add {host.name}")
            self.count = after
        return [
            Step(
                "etcd-add-learner",
                host.name,
                f"add {host.name} to etcd as a learner, and start it",
                seconds=LEARNER_SECONDS,
            ),
            Step(
                "etcd-promote",
                host.name,
                f"promote {host.name} when it is in sync with the leader",
                numbers,
                seconds=LEARNER_SECONDS,
            ),
        ]

    def remove(self, host: Host) -> list[Step]:
        """Return the step that takes a host out of etcd; none for one that is not listed."""
        entry = self.entry(host)
        if entry is None:
            return []
        after = self.count if entry.learner else self.count.removing(entry.id in self.count.well)
        numbers = self._insist(after, f"remove {host.name}")
        self.count = after
        self.listed = [member for member in self.listed if member.id != entry.id]
        known = entry.name if entry.name == host.name else f"{entry.name or entry.id} at {host.address}"
        return [Step("etcd-remove", host.name, f"remove the member {known} from etcd", numbers, "", 3, True)]

    def _insist(self, after: Quorum, action: str) -> str:
        try:
            return insist(self.count, after, action)
        except ClusterError as error:
            raise OperationError(error.message, error.remedy) from None


def following(
    context: Context, hosts: Sequence[Host], without: Collection[str] = (), leaving: bool = False
) -> list[Step]:
    """Return what other hosts do because of a changed membership.

    Args:
        context: of the operation.
        hosts: who comes or goes.
        without: hosts that do not follow.
        leaving: whether they go.

    Returns:
        Balancers that learn of other control planes, control planes and backup agents that learn of another
        store. Before hosts leave the API servers come first: those that leave answer while one restarts.
    """
    site = context.site
    names = ", ".join(host.name for host in hosts)
    word = "without" if leaving else "with"
    balancers: list[Step] = []
    servers: list[Step] = []
    agents: list[Step] = []
    events: list[Step] = []
    if any(host.in_group("control_plane") for host in hosts):
        balancers = [
            Step(
                "reload-load-balancer",
                balancer.name,
                f"the load balancer on {balancer.name} goes on {word} {names}",
            )
            for balancer in site.group("haproxy")
            if balancer.name not in without
        ]
    if any(host.in_group("etcd") for host in hosts):
        servers = [
            Step(
                "restart-api-server",
                other.name,
                f"the API server of {other.name} goes on with etcd {word} {names}",
                disruption="requests go to the other control planes meanwhile"
                if len(site.group("control_plane")) > 1
                else "the API does not answer for some seconds",
                seconds=CONTROL_PLANE_SECONDS,
            )
            for other in site.group("control_plane")
            if other.name not in without
        ]
        agents = [
            Step(
                "restart-backup",
                other.name,
                f"the backup agent of {other.name} goes on with etcd {word} {names}",
                seconds=BACKUP_SECONDS,
            )
            for other in site.group("etcd")
            if other.name not in without and other not in hosts and other.variables.get("etcd_backup_stores")
        ]
        events = events_anew(site, hosts)
    if leaving:
        return [*servers, *balancers, *events, *agents]
    return [*balancers, *events, *servers, *agents]


def unknown_elsewhere(steps: Sequence[Step], comes: str) -> list[str]:
    """Return the sentence about hosts that are new in the inventory, which all other hosts have to learn of.

    Only the hosts of its steps are changed by an operation, and nothing is compared with the others: what the
    inventory wants of them otherwise is not a matter of this run.

    Args:
        steps: of the operation.
        comes: the action of those steps whose targets may be new.
    """
    hosts = list(dict.fromkeys(step.target for step in steps if step.action == comes))
    if not hosts:
        return []
    return [
        f"where {', '.join(hosts)} is new in the inventory, or has another address: now ironspan apply. "
        "The other hosts learn its name by that, and let their pods reach its API server"
    ]


def events_anew(site: Site, hosts: Collection[Host]) -> list[Step]:
    """Return how the others start the etcd for events over, when hosts come, go or lose their part of it.

    Args:
        site: whose events may have a store of their own.
        hosts: who comes or goes.
    """
    return [
        Step(
            "restart-events",
            other.name,
            f"the etcd for events starts over on {other.name}",
            disruption="events are lost, and API servers do not count as ready until it has a quorum",
            seconds=EVENTS_SECONDS,
        )
        for other in site.group("etcd")
        if site.events_servers and other not in hosts
    ]


def join_step(host: Host) -> Step:
    """Return the step that makes a host a control plane."""
    return Step(
        "join",
        host.name,
        f"{host.name} joins the cluster as a control plane",
        seconds=CONTROL_PLANE_SECONDS,
    )


def leaving_steps(host: Host, nodes: Collection[str], what: str) -> list[Step]:
    """Return how a host is emptied, reset and forgotten.

    Args:
        host: the host.
        nodes: names of all Nodes.
        what: what is taken off it.
    """
    steps = []
    if host.name in nodes:
        steps.append(
            Step("drain", host.name, f"close {host.name} for new pods and evict its own", seconds=15)
        )
    reset = f"take {what} off {host.name}, its data too, if it answers"
    steps.append(Step("reset", host.name, reset, seconds=RESET_SECONDS, destructive=True))
    if host.name in nodes:
        steps.append(
            Step("delete-node", host.name, f"delete the Node {host.name}", seconds=5, destructive=True)
        )
    return steps
