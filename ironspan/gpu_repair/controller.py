# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Carries out what is decided: one pass after another, by the one program that has the Lease."""

from __future__ import annotations

import datetime
import logging
import socket
import time
import typing as t
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import drain as draining
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.cordon import node_path
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.dead_node import is_silent
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import (
    ApiError,
    ClusterError,
    UnreachableError,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.tls import client_context

from ironspan.gpu_repair import decide as deciding
from ironspan.gpu_repair import status
from ironspan.gpu_repair.agents import Agents
from ironspan.gpu_repair.model import WATCH, Decision, Node, State, Step, World
from ironspan.gpu_repair.nodes import Nodes
from ironspan.gpu_repair.reading import node_of, pod_of, those_that_go
from ironspan.gpu_repair.settings import Settings
from ironspan.gpu_repair.writing import change
from ironspan.program.errors import ProgramError, Refused, ServiceError
from ironspan.program.lasting import Lasting

LOG = logging.getLogger(__name__)
FIELD_MANAGER = "ironspan-gpu-repair"
SILENT_PERCENT = 33
"""With more GPU nodes than that not heard of it is the link, or the control plane, and not the nodes."""
_BUSY = (429, 500, 502, 503, 504)


def open_api(settings: Settings) -> Api:
    """Return a client with the program's certificate. Raises ProgramError."""
    try:
        texts = [
            Path(path).read_text(encoding="ascii")
            for path in (settings.ca, settings.certificate, settings.key)
        ]
        return Api(settings.server, client_context(*texts), patience=5)
    except OSError as error:
        raise ProgramError(
            f"The certificate cannot be used: {error}.", "Run playbooks/site.yml, which writes it."
        ) from error


def unsound(nodes: Sequence[Node], silent: Sequence[str], ready: str) -> str:
    """Return why nothing may be done now, empty when it may.

    An alarm of etcd needs no question: etcd refuses writes then, so the Lease cannot be renewed.

    Args:
        nodes: all GPU nodes that the cluster has.
        silent: those that the cluster has not heard of for a while.
        ready: what the API server answers at /readyz.
    """
    if ready != "ok":
        return f"the API server is not ready: {ready[:200]}"
    if len(silent) > 1 and len(silent) * 100 > SILENT_PERCENT * len(nodes):
        return f"{len(silent)} of {len(nodes)} GPU nodes are not heard of: look at the link first"
    return ""


@dataclass(frozen=True, slots=True)
class Passed:
    """What a pass found and did.

    Args:
        world: as it was.
        nodes: as they were read.
        decision: what was due.
        done: the steps that were done.
        held: why pods stay, by node.
    """

    world: World
    nodes: Sequence[Node]
    decision: Decision
    done: Sequence[Step]
    held: t.Mapping[str, str]


class Controller:
    """Goes through all GPU nodes again and again.

    Args:
        api: the cluster.
        settings: of the site.
        held: whether a change may be sent now.
        clock: seconds since the epoch.
        told: called with what each pass found.
    """

    def __init__(
        self,
        api: Api,
        settings: Settings,
        held: Callable[[], bool],
        clock: Callable[[], float] = time.time,
        told: Callable[[Passed], object] = lambda passed: None,
    ) -> None:
        self._api, self._settings, self._held, self._clock, self._told = api, settings, held, clock, told
        self._nodes, self._agents = Nodes(api), Agents(settings.limits.silent_seconds)
        self._frozen, self._untold = Lasting(LOG), Lasting(LOG)
        self._proposed = {name: Lasting(LOG, logging.INFO) for name in settings.nodes}
        self._published = ""

    def one_pass(self) -> Passed:
        """Look, decide, and do it.

        Raises:
            ServiceError: the API server does not answer, or refuses.
        """
        try:
            return self._pass()
        except UnreachableError as error:
            raise ServiceError(error.message, error.remedy, retryable=True) from error
        except ApiError as error:
            kind = ServiceError if error.status in (*_BUSY, 409, 410) else Refused
            raise kind(error.message, error.remedy) from error
        except ClusterError as error:
            raise Refused(error.message, error.remedy) from error

    def _pass(self) -> Passed:
        settings = self._settings
        self._nodes.look()
        nodes = [
            node_of(found, rack, settings.tests)
            for name, rack in settings.nodes.items()
            if (found := self._nodes.found.get(name))
        ]
        nodes = self._agents.told(nodes, self._nodes.found)
        world = World(self._clock(), settings.mode, self._unsound(nodes))
        self._frozen.tell((world.frozen and f"Nothing is done: {world.frozen}.") or None)
        nodes = self._with_pods(nodes, world)
        decision = deciding.decide(nodes, world, settings.policy, settings.limits)
        if decision.storm and not world.frozen:
            world = replace(world, released_until=status.released_until(self._api, world.now))
            decision = deciding.decide(nodes, world, settings.policy, settings.limits)
        done: list[Step] = []
        held: dict[str, str] = {}
        if settings.mode == WATCH:
            self._propose(decision)
        else:
            done = list(self._done(decision))
            drained = [step.node.name for step in decision.steps if step.record is None]
            held = self._evicted(drained)
        passed = Passed(world, nodes, decision, done, held)
        self._publish(passed)
        self._told(passed)
        return passed

    def _unsound(self, nodes: Sequence[Node]) -> str:
        silent = [node.name for node in nodes if is_silent(self._nodes.found[node.name])]
        try:
            ready = self._api.request("GET", "/readyz", patience=0).decode("utf-8", "replace")
        except ApiError as error:
            ready = error.message
        return unsound(nodes, silent, ready)

    def _with_pods(self, nodes: Sequence[Node], world: World) -> list[Node]:
        """Return the nodes with the pods of those that are drained or may be tested."""
        settings = self._settings
        wanted = set(deciding.asks_for_pods(nodes, world, settings.policy, settings.limits))
        return [
            replace(node, pods=tuple(map(pod_of, those_that_go(draining.pods_of(self._api, node.name)))))
            if node.name in wanted
            else node
            for node in nodes
        ]

    def _propose(self, decision: Decision) -> None:
        due = {step.node.name: step for step in decision.steps if not _is_quiet(step)}
        for name, lasting in self._proposed.items():
            step = due.get(name)
            lasting.tell(f"{name}: would be {_state(step)}: {step.why} (mode watch)" if step else None)

    def _done(self, decision: Decision) -> Iterator[Step]:
        """Do the steps that change a node, each while the Lease is held and the node is as it was read."""
        for step in decision.steps:
            if step.record is None:
                continue
            if not self._held():
                return
            try:
                written = self._api.merge(node_path(step.node.name), change(step))
            except ApiError as error:
                # Another one by now, or deleted: the next pass looks at it again.
                if error.status in (404, 409):
                    continue
                LOG.warning("%s: %s", step.node.name, error)
                continue
            self._nodes.put(written)
            if not _is_quiet(step):
                LOG.info("%s: %s: %s", step.node.name, _state(step), step.why)
                self._event(step)
            yield step

    def _evicted(self, names: Sequence[str]) -> dict[str, str]:
        """Ask for the eviction of what is left on all nodes that are drained, at the same time, once."""
        if not names or not self._held():
            return {}
        policy = draining.Policy(seconds=0, empty_dir_data=self._settings.empty_dir_data)
        outcomes = draining.drain(self._api, names, policy)
        return {each.node: "; ".join(each.reasons[:3]) for each in outcomes if each.reasons}

    def _event(self, step: Step) -> None:
        """Tell of a step as an Event of the node; that it cannot be told changes nothing."""
        assert step.record is not None
        now = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}"
        state = "".join(part.capitalize() for part in str(step.record.state).split("-"))
        body: Object = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": "gpu-repair-", "namespace": "default"},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Node",
                "name": step.node.name,
                "uid": step.node.uid,
            },
            "type": "Normal" if step.record.state is State.READY else "Warning",
            "reason": f"GpuRepair{state}",
            "message": "; ".join((step.why, *step.record.evidence))[:1000],
            "source": {"component": FIELD_MANAGER, "host": socket.gethostname()},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            self._api.request("POST", "/api/v1/namespaces/default/events", body, patience=0)
        except ClusterError as error:
            LOG.debug("%s: %s", step.node.name, error)

    def _publish(self, passed: Passed) -> None:
        """Write for people what waits for what, when it has changed."""
        waiting = {**passed.decision.waiting, **passed.held}
        proposed = {}
        if passed.world.mode == WATCH:
            due = (step for step in passed.decision.steps if not _is_quiet(step))
            proposed = {step.node.name: f"{_state(step)}: {step.why}" for step in due}
        shown = {*waiting, *proposed} | {
            node.name for node in passed.nodes if node.record and node.state is not State.READY
        }
        racks = {name: self._settings.nodes[name] for name in shown}
        text = status.dumps(passed.world, self._settings, passed.decision, waiting, proposed, racks)
        if text == self._published or not self._held():
            return
        try:
            status.publish(self._api, text, passed.world.now)
        except ClusterError as error:
            # Nodes come first: who cannot read of it can still read them.
            self._untold.tell(error)
            return
        self._untold.tell(None)
        self._published = text


def _is_quiet(step: Step) -> bool:
    """Tell whether a step takes the node nowhere."""
    return step.record is not None and step.record.state is step.node.state and step.node.record is not None


def _state(step: Step) -> str:
    return str(step.record.state) if step.record else "evicted"
