# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a simulation does, one phase after the other, and what is measured in each."""

from __future__ import annotations

import itertools
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api

from tests.support.simulation import metrics, report
from tests.support.simulation.nodes import NODES, Readiness, join, watched
from tests.support.simulation.outcome import Outcome, Phase, Plan
from tests.support.simulation.plane import EVENTS, Plane, Usage, plane, wait_until
from tests.support.simulation.settings import render
from tests.support.simulation.watchers import watching

PODS = "/api/v1/namespaces/default/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_COUNTED = {"nodes": NODES, "pods": "/api/v1/pods", "leases": LEASES, "events": "/api/v1/events"}
_WRITERS = 16
_LIST_EVERY = 10
"""Seconds after which somebody lists all pods and nodes, as a person or a monitoring system does."""
_COUNTERS = (
    "apiserver_watch_events_total",
    "apiserver_watch_events_sizes_sum",
    "apiserver_flowcontrol_rejected_requests_total",
    "apiserver_terminated_watchers_total",
)


class _Measure:
    """Begins a phase where the one before ended."""

    def __init__(self, running: Plane, say: t.Callable[[str], None]) -> None:
        self._running = running
        self._say = say
        self._start()
        self.phases: list[Phase] = []

    def _start(self) -> None:
        self._scrape, self._usage = self._running.scrape(), self._running.usage()
        self._time = time.monotonic()

    def end(self, name: str) -> None:
        """Keep what was measured since the end of the last phase."""
        seconds = time.monotonic() - self._time
        used, scrape = self._running.usage(), self._running.scrape()
        self.phases.append(
            Phase(
                name=name,
                seconds=seconds,
                cpu={program: used[program].cpu - self._usage[program].cpu for program in used},
                counters=metrics.differences(self._scrape, scrape, _COUNTERS),
                requests=metrics.requests(self._scrape, scrape),
            )
        )
        # A simulation may be ended before it is done.
        self._say("\n".join(report.phase(self.phases[-1])))
        self._start()


def simulate(plan: Plan, program: Path, folder: Path, say: t.Callable[[str], None]) -> Outcome:
    """Run a simulation.

    Args:
        plan: what to simulate.
        program: kwok.
        folder: for data, keys and logs; about 100 MB, and 20 kB a node.
        say: told what is going on.
    """
    settings = render(plan.planned or plan.nodes, folder, with_profile=plan.with_profile)
    at_once = plan.at_once or settings.profile.joins_at_once
    with plane(program, settings, folder, events_apart=plan.events_apart, fsync=plan.fsync) as running:
        control = running.control
        kubelet = ("system:node:watcher", ["system:nodes"])
        server_name = control.endpoint.partition(":")[0]
        watches = {
            **running.files(*kubelet),
            "address": control.address,
            "port": control.api_port,
            "server_name": server_name,
            "nodes": min(plan.watchers, plan.nodes),
            "pods": min(plan.pod_watches, plan.nodes),
        }
        server = f"https://{control.address}:{control.api_port}"
        with (
            watching(watches),
            watched(server, server_name, running.tls("simulation", ["kubeadm:cluster-admins"])) as seen,
        ):
            wait_until(lambda: _has_account(running.api()), "the default service account", plan.patience)
            measure = _Measure(running, say)
            say(f"{plan.nodes} nodes join, {at_once} at the same time")
            joined = join(lambda: running.api(*kubelet), plan.nodes, at_once, seen, plan.patience, say)
            measure.end("join")
            changes = seen.seen / plan.nodes
            say(f"joined in {joined:.0f} s; {plan.nodes * plan.pods_per_node} pods start")
            _start_pods(running, plan)
            wait_until(
                lambda: _count(running.api(), LEASES) == plan.nodes, "a lease for each node", plan.patience
            )
            measure.end("pods")
            say(f"heartbeats for {plan.seconds:.0f} s")
            _be_quiet(running.api(), plan.seconds)
            measure.end("quiet")
            return _outcome(plan, at_once, running, measure.phases, seen, changes)


def _has_account(api: Api) -> bool:
    return api.find("/api/v1/namespaces/default/serviceaccounts/default") is not None


def _start_pods(running: Plane, plan: Plan) -> None:
    """Make pods that the scheduler binds and kwok lets run."""
    clients = [running.api() for _ in range(_WRITERS)]
    pods = plan.nodes * plan.pods_per_node

    def make(number: int) -> None:
        container = {
            "name": "main",
            "image": "registry.example.com/group/image-1",
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
        }
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pod-{number:06}", "labels": {"app": f"app-{number % 50}"}},
            "spec": {"containers": [container]},
        }
        clients[number % _WRITERS].request("POST", PODS, body, timeout=plan.patience)

    with ThreadPoolExecutor(_WRITERS) as pool:
        list(pool.map(make, range(pods)))

    def all_run() -> bool:
        time.sleep(1)
        query = {"fieldSelector": "status.phase!=Running", "limit": "1"}
        return not clients[0].get(PODS, **query)["items"]

    wait_until(all_run, "all pods run", plan.patience + pods / 5)


def _be_quiet(api: Api, seconds: float) -> None:
    end = time.monotonic() + seconds
    for path in itertools.cycle(("/api/v1/pods", NODES)):
        left = end - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(left, _LIST_EVERY / 2))
        api.request("GET", path, timeout=60)


def _outcome(
    plan: Plan, at_once: int, running: Plane, phases: list[Phase], seen: Readiness, changes: float
) -> Outcome:
    scrape, usage = running.scrape(), running.usage()
    stores = ["etcd-1", EVENTS] if plan.events_apart else ["etcd-1"]
    watches = {
        resource: round(count)
        for (resource, verb), count in scrape.by("apiserver_longrunning_requests", "resource", "verb").items()
        if verb == "WATCH" and count
    }
    return Outcome(
        plan=plan,
        at_once=at_once,
        flags={key: value for key, value in running.settings.api_server.items() if "inflight" in key},
        phases=phases,
        flaps=list(seen.flaps),
        node_changes=changes,
        watches=watches,
        objects={resource: _count(running.api(), path) for resource, path in _COUNTED.items()},
        etcd_bytes={
            store: round(running.scrape_etcd(store).total("etcd_mvcc_db_total_size_in_bytes"))
            for store in stores
        },
        memory={program: _memory(used) for program, used in usage.items()},
    )


def _count(api: Api, path: str) -> int:
    """Return how many objects there are, without reading them."""
    answer = api.get(path, limit="1")
    return len(answer["items"]) + int(answer["metadata"].get("remainingItemCount", 0))


def _memory(used: Usage) -> tuple[float, float]:
    return used.resident, used.peak
