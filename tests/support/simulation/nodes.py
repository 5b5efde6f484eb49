# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Nodes that join as hosts of a site do, and a watch that sees each become Ready, and stop being it."""

from __future__ import annotations

import concurrent.futures
import contextlib
import http
import json
import threading
import time
import typing as t
from collections.abc import Iterator

import urllib3
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api

NODES = "/api/v1/nodes"
_CLIENT_THREADS = 16
"""Connections that one client keeps."""
_TOLD = 250
_AGAIN_SECONDS = 0.2


def name(number: int) -> str:
    """Return the name of a node."""
    return f"sim-{number:05}"


class Readiness:
    """What has been seen of nodes' conditions.

    Attributes:
        ready: nodes that are Ready.
        joined: those of them that have their part of the pod network.
        flaps: nodes that were Ready and then were not, once for each time.
        seen: changes of nodes that were told.
    """

    def __init__(self) -> None:
        self.ready: set[str] = set()
        self.joined: set[str] = set()
        self.flaps: list[str] = []
        self.seen = 0
        self._changed = threading.Condition()

    def take(self, event: dict[str, t.Any]) -> None:
        """Take note of an event of a watch on nodes; one that a person deletes is no flap."""
        if event["type"] not in ("ADDED", "MODIFIED", "DELETED"):
            return
        node = event["object"]
        conditions = {item["type"]: item["status"] for item in node["status"].get("conditions", [])}
        with self._changed:
            self.seen += 1
            this = node["metadata"]["name"]
            is_ready = conditions.get("Ready") == "True" and event["type"] != "DELETED"
            if this in self.ready and not is_ready and event["type"] != "DELETED":
                self.flaps.append(this)
            for group, belongs in (
                (self.ready, is_ready),
                (self.joined, is_ready and bool(node["spec"].get("podCIDR"))),
            ):
                (group.add if belongs else group.discard)(this)
            self._changed.notify_all()

    def wait(self, this: str, seconds: float) -> None:
        """Wait until a node is Ready and has its part of the pod network.

        Raises:
            TimeoutError: it is not.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: this in self.joined, seconds):
                raise TimeoutError(f"{this} is not Ready within {seconds:.0f} s")


@contextlib.contextmanager
def watched(server: str, server_name: str, context: t.Any) -> Iterator[Readiness]:
    """Watch all nodes while the body runs."""
    seen, stop = Readiness(), threading.Event()
    pool = urllib3.PoolManager(
        ssl_context=context, server_hostname=server_name, assert_hostname=server_name, retries=False
    )
    url = f"{server}{NODES}?watch=1&timeoutSeconds=7200"

    def ask(version: str) -> urllib3.BaseHTTPResponse:
        place = f"{url}&resourceVersion={version}" if version else url
        return pool.request(
            "GET", place, preload_content=False, timeout=urllib3.Timeout(connect=10, read=None)
        )

    def follow(answer: urllib3.BaseHTTPResponse) -> None:
        # An API server ends watches when it likes: the next one goes on behind the last event, and nothing is
        # missed unless that is too long ago, which ends this and is noticed below.
        last = ""
        while answer.status != http.HTTPStatus.GONE:
            with contextlib.suppress(urllib3.exceptions.HTTPError):
                for line in answer if answer.status == http.HTTPStatus.OK else ():
                    event = json.loads(line)
                    if stop.is_set() or event["type"] == "ERROR":
                        return
                    last = event["object"]["metadata"]["resourceVersion"]
                    seen.take(event)
            if stop.wait(_AGAIN_SECONDS):
                return
            with contextlib.suppress(urllib3.exceptions.HTTPError):
                answer = ask(last)

    thread = threading.Thread(target=follow, args=(ask(""),), name="watch on nodes", daemon=True)
    thread.start()
    try:
        yield seen
        if not thread.is_alive():
            raise RuntimeError("the watch on nodes was interrupted for too long: flaps may have been missed")
    finally:
        stop.set()


def join(
    clients: t.Callable[[], Api],
    nodes: int,
    at_once: int,
    seen: Readiness,
    seconds: float,
    say: t.Callable[[str], None],
) -> float:
    """Let nodes join, never more at the same time than the profile allows.

    Args:
        clients: makes a client; each serves some of those who join.
        nodes: how many.
        at_once: how many of them at the same time.
        seen: tells when one is Ready.
        seconds: for one node.
        say: told now and then how many have joined.

    Returns:
        Seconds until all were Ready.
    """
    shared = [clients() for _ in range(-(-at_once // _CLIENT_THREADS))]
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        jobs = [
            pool.submit(_join, shared[number % len(shared)], number, seen, seconds) for number in range(nodes)
        ]
        for number, job in enumerate(concurrent.futures.as_completed(jobs), 1):
            job.result()
            if number % _TOLD == 0:
                say(f"{number} have joined")
    return time.monotonic() - start


def _join(api: Api, number: int, seen: Readiness, seconds: float) -> None:
    """Do what is done to a Node while its host joins; kwok and the controllers do their part of it."""
    this = name(number)
    labels = {"kubernetes.io/hostname": this, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    capacity = {"cpu": "64", "memory": "512Gi", "pods": "110", "ephemeral-storage": "1Ti"}
    # Half the size of a real Node is its list of images.
    images = [
        {"names": [f"registry.example.com/group/image-{index}@sha256:{index:064}"], "sizeBytes": 10**9}
        for index in range(20)
    ]
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": this, "labels": labels},
        "status": {"capacity": capacity, "allocatable": capacity, "images": images},
    }
    api.request("POST", NODES, node, timeout=seconds)
    seen.wait(this, seconds)
    # flannel: where the node is, and that its network works.
    annotations = {
        "flannel.alpha.coreos.com/backend-data": json.dumps({"VNI": 1, "VtepMAC": "aa:bb:cc:dd:ee:ff"}),
        "flannel.alpha.coreos.com/backend-type": "vxlan",
        "flannel.alpha.coreos.com/kube-subnet-manager": "true",
        "flannel.alpha.coreos.com/public-ip": "192.0.2.1",
    }
    api.merge(f"{NODES}/{this}", {"metadata": {"annotations": annotations}})
    network = {"type": "NetworkUnavailable", "status": "False", "reason": "FlannelIsUp", "message": "running"}
    api.request(
        "PATCH", f"{NODES}/{this}/status", {"status": {"conditions": [network]}},
        "application/strategic-merge-patch+json", timeout=seconds,
    )  # fmt: skip
    # What the inventory says of it.
    api.merge(
        f"{NODES}/{this}", {"metadata": {"labels": {"ironspan.io/site": "rack", "ironspan.io/pool": "gpu"}}}
    )
