# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Runs the smoke pods: makes them, waits, gathers what they found, and takes everything away again."""

from __future__ import annotations

import concurrent.futures
import contextlib
import datetime
import os
import secrets
import time
import typing as t
from collections.abc import Iterator, Sequence
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import smoke
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.pods import MANAGED_BY
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.processes import started

_NAMESPACES = "/api/v1/namespaces"
_SELECTOR = ",".join(f"{key}={value}" for key, value in MANAGED_BY.items())
_OWNER = "ironspan/owner"
_DEADLINE = "ironspan/deadline"
_POLL_SECONDS = 0.5
_PARALLEL = 8


class PodResult(t.NamedTuple):
    """What one smoke pod found. ``problem`` is empty when all is well."""

    pod: str
    node: str
    runtime: str
    role: str
    address: str
    findings: dict[str, str]
    problem: str


def run(
    api: Api,
    pods: Sequence[smoke.SmokePod],
    domain: str,
    seconds: int,
    image: str = smoke.IMAGE,
    progress: t.Callable[[str], None] = lambda text: None,
) -> list[PodResult]:
    """Run smoke pods and take them away again, also when interrupted.

    Args:
        api: the cluster.
        pods: from ``smoke.lay_out``.
        domain: the cluster's DNS domain.
        seconds: how long to wait for all results.
        image: a busybox.
        progress: told how many pods are done.

    Returns:
        A result for every pod.
    """
    remove_leftovers(api)
    with _namespace(api, seconds) as space:
        addresses = _make_services(api, space, pods)
        bodies = [smoke.pod(pod, space, domain, addresses, seconds, image) for pod in pods]
        _apply_all(api, f"{_NAMESPACES}/{space}/pods", bodies)
        found = _wait(api, space, len(pods), seconds, progress)
        return [result(pod, found.get(pod.name)) for pod in pods]


def remove_leftovers(api: Api, now: datetime.datetime | None = None) -> list[str]:
    """Delete what a killed run left: its process is gone, or its time is over.

    Returns:
        The namespaces deleted.
    """
    moment = now or datetime.datetime.now(datetime.UTC)
    deleted = []
    for item in api.get(_NAMESPACES, labelSelector=_SELECTOR)["items"]:
        metadata = item["metadata"]
        if "deletionTimestamp" in metadata:
            continue
        notes = metadata.get("annotations", {})
        if _is_over_time(notes.get(_DEADLINE, ""), moment) or _is_dead(notes.get(_OWNER, "")):
            api.delete(f"{_NAMESPACES}/{metadata['name']}")
            deleted.append(metadata["name"])
    return deleted


def _is_over_time(deadline: str, now: datetime.datetime) -> bool:
    try:
        return datetime.datetime.fromisoformat(deadline) <= now
    except (ValueError, TypeError):
        return True


@contextlib.contextmanager
def _namespace(api: Api, seconds: int) -> Iterator[str]:
    name = f"ironspan-verify-{secrets.token_hex(4)}"
    over = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds + 120)
    body = smoke.namespace(name, {_OWNER: _this_process(), _DEADLINE: over.isoformat(timespec="seconds")})
    try:
        api.apply(f"{_NAMESPACES}/{name}", body)
        yield name
    finally:
        # The API finishes a deletion by itself once it has accepted it, so nobody waits for it here.
        api.delete(f"{_NAMESPACES}/{name}")


def _make_services(api: Api, space: str, pods: Sequence[smoke.SmokePod]) -> dict[str, str]:
    path = f"{_NAMESPACES}/{space}"
    _apply_all(api, f"{path}/serviceaccounts", [smoke.service_account(space)])
    made = _apply_all(api, f"{path}/services", smoke.services(space, pods))
    return {item["metadata"]["name"]: item["spec"]["clusterIP"] for item in made}


def _apply_all(api: Api, path: str, bodies: Sequence[Object]) -> list[Object]:
    with concurrent.futures.ThreadPoolExecutor(_PARALLEL) as pool:
        return list(pool.map(lambda body: api.apply(f"{path}/{body['metadata']['name']}", body), bodies))


def _wait(
    api: Api, space: str, count: int, seconds: int, progress: t.Callable[[str], None]
) -> dict[str, Object]:
    end = time.monotonic() + seconds + 10
    told = -1
    while True:
        begin = time.monotonic()
        items = api.get(f"{_NAMESPACES}/{space}/pods")["items"]
        # The list of a large site is long: at most a fifth of the time goes into asking for it.
        pause = max(_POLL_SECONDS, 4 * (time.monotonic() - begin))
        found = {item["metadata"]["name"]: item for item in items}
        done = sum(map(_is_over, items))
        if done != told:
            progress(f"{done} of {count} smoke pods have answered")
            told = done
        if done >= count:
            return found
        if time.monotonic() > end:
            return found
        time.sleep(pause)


def _is_over(item: Object) -> bool:
    if "terminated" in _probe(item).get("state", {}):
        return True
    return bool(item.get("status", {}).get("phase") == "Failed")


def _probe(item: Object) -> Object:
    for status in item.get("status", {}).get("containerStatuses", ()):
        if status["name"] == "probe":
            return t.cast("Object", status)
    return {}


def result(pod: smoke.SmokePod, item: Object | None) -> PodResult:
    """Judge one pod by its status."""
    role = smoke.CONTROL_PLANE if pod.control_plane else smoke.WORKERS
    status = (item or {}).get("status", {})
    terminated = _probe(item or {}).get("state", {}).get("terminated")
    if terminated is None:
        problem = f"no result in time: {_reason(status)}"
        return PodResult(pod.name, pod.node, pod.runtime, role, status.get("podIP", ""), {}, problem)
    lines = str(terminated.get("message", "")).splitlines()
    findings = dict(line.split("=", 1) for line in lines if "=" in line)
    problem = "; ".join(_problems(pod, findings))
    return PodResult(pod.name, pod.node, pod.runtime, role, status.get("podIP", ""), findings, problem)


def _problems(pod: smoke.SmokePod, findings: dict[str, str]) -> Iterator[str]:
    if "failed" not in findings:
        yield "the probe left no result"
        return
    if pod.runtime == "gvisor" and "gVisor" not in findings.get("sandbox", ""):
        yield f"it does not run in gVisor but on {findings.get('kernel', 'an unknown kernel')}"
    if pod.runtime == "runc" and findings.get("sandbox"):
        yield "it runs in gVisor though it asked for no RuntimeClass"
    if not findings.get("dns_cluster"):
        yield "DNS does not answer for kubernetes.default"
    if not findings.get("dns_service"):
        yield f"DNS does not answer for the service {pod.asks}"
    if not findings.get("service"):
        yield f"the service {pod.asks} does not answer at its cluster address"
    if findings.get("known") != str(pod.peers):
        yield f"DNS names {findings.get('known') or 0} of {pod.peers} peers"
    if findings.get("unreached"):
        yield f"it cannot reach {findings['unreached']}"
    if findings["failed"] != "0" and findings.get("dns_service"):
        yield "it needed longer than it had"


def _reason(status: Object) -> str:
    """Return the most telling thing a pod's status says about why it is not done."""
    for container in status.get("containerStatuses", ()):
        waiting = container.get("state", {}).get("waiting", {})
        if waiting.get("message") or waiting.get("reason") not in (
            None,
            "ContainerCreating",
            "PodInitializing",
        ):
            return f"{waiting['reason']} {waiting.get('message', '')}".strip()
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] != "True":
            return str(condition.get("message") or condition.get("reason") or "not scheduled")
    if status.get("message"):
        return str(status["message"])
    return f"phase {status.get('phase', 'unknown')}, its containers were not started"


def _this_process() -> str:
    """Name this process so that another one on this machine can tell whether it still lives."""
    return f"{_machine()}/{os.getpid()}/{started(os.getpid())}"


def _is_dead(owner: str) -> bool:
    machine, _, process = owner.rpartition("/")[0].rpartition("/")
    if machine != _machine() or not process.isdigit():
        return False
    return started(int(process)) != owner.rpartition("/")[2]


def _machine() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    # Process ids mean something within one PID namespace only.
    return f"{boot}.{Path('/proc/self/ns/pid').stat().st_ino}"
