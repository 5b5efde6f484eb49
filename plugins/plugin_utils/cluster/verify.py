# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""One batched check of a whole site, through the API and etcd only: no host is contacted."""

from __future__ import annotations

import concurrent.futures
import contextlib
import datetime
import signal
import ssl
import threading
import time
import types
import typing as t
from collections.abc import Iterator, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import etcd, smoke, smoke_run
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.expectations import Expected
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.node_check import check_nodes
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.report import Check, Report
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError

Progress = t.Callable[[str], None]


def verify(
    api: Api,
    etcd_context: ssl.SSLContext,
    expected: Expected,
    seconds: int = 120,
    *,
    run_pods: bool = True,
    progress: Progress = lambda text: None,
) -> Report:
    """Check the whole site.

    Args:
        api: the cluster.
        etcd_context: TLS to the members, with a client certificate.
        expected: what the inventory says.
        seconds: how long to wait for nodes and pods that are not ready yet.
        run_pods: False leaves out what makes objects in the cluster (check mode).
        progress: told what goes on.

    Returns:
        The report. It names all problems; nothing is raised for a site that is not well.
    """
    begin, started = time.monotonic(), datetime.datetime.now(datetime.UTC)
    with concurrent.futures.ThreadPoolExecutor(2) as pool, _stoppable():
        others = [
            pool.submit(_timed, "api", lambda: check_api(api, expected)),
            pool.submit(_timed, "etcd", lambda: check_etcd(etcd_context, expected)),
        ]
        # In this thread, the only one that an interrupt reaches: it must take the pods away then.
        checks = _check_nodes_and_pods(api, expected, seconds, run_pods, progress)
        checks = [other.result() for other in others] + checks
    return Report(expected.site, started.isoformat(timespec="seconds"), time.monotonic() - begin, checks)


def _check_nodes_and_pods(
    api: Api, expected: Expected, seconds: int, run_pods: bool, progress: Progress
) -> list[Check]:
    try:
        found = check_nodes(api, expected, seconds, progress)
    except ClusterError as error:
        return [Check("nodes", False, "could not be checked", [str(error)])]
    if not run_pods:
        return [found.check, Check("network", None, "smoke pods are not run in check mode")]
    # Pods on a node that is not there would only tell that it is not, and hold up the others.
    nodes = [node for node in expected.nodes if node.name in found.ready]
    if not nodes:
        return [found.check, Check("network", None, "no node is Ready")]
    return [found.check, *_pods(api, expected._replace(nodes=nodes), seconds, progress)]


def check_api(api: Api, expected: Expected) -> Check:
    """Ask the endpoint for its version and readiness."""
    version = str(api.get("/version")["gitVersion"])
    ready = api.text("/readyz")
    problems = []
    if version != f"v{expected.kubernetes_version}":
        problems.append(f"the API is version {version}, wanted v{expected.kubernetes_version}")
    if ready != "ok":
        problems.append(f"the API is not ready: {ready}")
    return Check("api", not problems, f"{api.server} is ready, {version}", problems)


def check_etcd(context: ssl.SSLContext, expected: Expected) -> Check:
    """Ask every member, see etcd.py."""
    members = etcd.ask_settled(expected.etcd, context)
    problems = etcd.problems(members, expected.etcd_version)
    versions = {member.version for member in members if member.version}
    if not expected.etcd_version and len(versions) > 1:
        problems.append(f"the members run different versions: {', '.join(sorted(versions))}")
    evidence = [
        {
            "member": member.name,
            "cluster": member.cluster,
            "leader": "yes" if member.leader and member.leader == member.member else "no",
            "version": member.version,
            "revision": member.revision,
            "hash@revision": member.hash,
            "MiB": round(member.database_bytes / 2**20, 1),
        }
        for member in members
    ]
    healthy = sum(member.healthy for member in members)
    clusters = {member.cluster for member in members if not member.error}
    same = {0: "none answers", 1: "one cluster"}.get(len(clusters), "NOT one cluster")
    return Check("etcd", not problems, f"{healthy} of {len(members)} healthy, {same}", problems, evidence)


def _pods(api: Api, expected: Expected, seconds: int, progress: Progress) -> list[Check]:
    begin = time.monotonic()
    layout = smoke.lay_out(
        [smoke.SmokeNode(node.name, node.control_plane, node.gvisor) for node in expected.nodes]
    )
    try:
        results = smoke_run.run(api, layout, expected.cluster_domain, seconds, expected.image, progress)
    except ClusterError as error:
        return [Check("network", False, "the smoke pods could not be run", [str(error)])]
    sides = {node.name: node.side for node in expected.nodes}
    return pod_checks(results, sides, time.monotonic() - begin)


def pod_checks(
    results: Sequence[smoke_run.PodResult], sides: Mapping[str, str], seconds: float
) -> list[Check]:
    """Turn the pods' results into checks: runtime, names, and the network.

    Args:
        results: of all pods.
        sides: node name -> the end of the link it is on.
        seconds: how long the pods took.
    """
    problems = [f"{found.pod} on {found.node}: {found.problem}" for found in results if found.problem]
    well = sum(not found.problem for found in results)
    sandboxed = [found for found in results if found.runtime == "gvisor"]
    proven = sum("gVisor" in found.findings.get("sandbox", "") for found in sandboxed)
    named = sum(bool(found.findings.get("dns_cluster")) for found in results)
    evidence = [
        {
            "pod": found.pod,
            "node": found.node,
            "side": sides.get(found.node, ""),
            "address": found.address,
            "kernel says": found.findings.get("sandbox") or _kernel(found.findings.get("kernel", "")),
            "DNS": found.findings.get("dns_cluster", "") or "NO",
            "service": found.findings.get("service", "") or "NO",
            "peers": found.findings.get("peers", "") or "NO",
        }
        for found in results
    ]
    checks = [
        Check(
            "network",
            not problems,
            f"{well} of {len(results)} pods reach all peers, names and services",
            problems,
            evidence,
            seconds,
        ),
        Check(
            "dns",
            named == len(results),
            f"{named} of {len(results)} pods get answers for cluster and service names",
            [] if named == len(results) else ["see network"],
        ),
    ]
    if sandboxed:
        summary = f"{proven} of {len(sandboxed)} gVisor pods run on gVisor's kernel"
        verdict = proven == len(sandboxed)
        checks.append(Check("gvisor", verdict, summary, [] if verdict else ["see network"]))
    return checks


def _kernel(line: str) -> str:
    return " ".join(line.split()[:3])


def _timed(name: str, check: t.Callable[[], Check]) -> Check:
    begin = time.monotonic()
    try:
        made = check()
    except ClusterError as error:
        made = Check(name, False, "could not be checked", [str(error)])
    return Check(made.name, made.ok, made.summary, made.problems, made.evidence, time.monotonic() - begin)


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """Turn SIGINT and SIGTERM into an exception while pods exist, so that they are taken away on the way out.

    Ansible's workers die of either at once otherwise.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: types.FrameType | None) -> None:
        # Once only: a second one must not interrupt the cleaning up.
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
