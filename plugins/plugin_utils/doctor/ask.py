# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Asks the API, etcd and the controller's own files. Reads only."""

from __future__ import annotations

import concurrent.futures
import json
import statistics
import time
import typing as t
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.etcd import Member, ask_settled
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.etcd_metrics import fsync_p99
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.attestation_checks import read_tpms
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.findings import Content, Controller
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError, ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.encryption_state import Encryption
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan import keep, site_lock
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site

NAMESPACES = ("kube-system", "kube-flannel")
PATIENCE_S = 3.0
"""How long a request to the API is sent again; somebody is waiting for this command."""
ROUNDS = 5
_AUTHORITIES = ("etcd", "kubernetes", "front-proxy")


def ask_api(session: Session) -> Content:
    """Return the cluster's answers, or ``error``.

    Args:
        session: the site's cluster.
    """
    try:
        api = session.api(PATIENCE_S)
        version = api.get("/version")["gitVersion"]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            nodes = pool.submit(_items, api, "/api/v1/nodes")
            requests = pool.submit(_items, api, "/apis/certificates.k8s.io/v1/certificatesigningrequests")
            pods = [pool.submit(_items, api, f"/api/v1/namespaces/{name}/pods") for name in NAMESPACES]
            answers: Content = {
                "version": version,
                "nodes": nodes.result(),
                "requests": requests.result(),
                "pods": [pod for listed in pods for pod in listed.result()],
            }
        # Alone, so that nothing else of ours is in the way.
        answers["ready"] = _ready(api)
        answers["milliseconds"] = statistics.median(_milliseconds(api) for _ in range(ROUNDS))
        return answers
    except (ClusterError, PkiError) as error:
        return {"error": error.message.rstrip(".")}
    except (KeyError, TypeError, ValueError) as error:
        # Something else answers there, a proxy say: that is a finding, not the end of the doctor.
        return {"error": f"it answers strangely: {type(error).__name__}: {error}"}


def _items(api: Api, path: str) -> list[Content]:
    return t.cast("list[Content]", api.get(path)["items"])


def _ready(api: Api) -> str:
    try:
        return api.request("GET", "/readyz", patience=0).decode("utf-8", "replace")
    except ApiError as error:
        return str(error)


def _milliseconds(api: Api) -> float:
    began = time.monotonic()
    api.get("/api/v1/namespaces/kube-system")
    return (time.monotonic() - began) * 1000


def ask_etcd(session: Session) -> tuple[list[Member], str]:
    """Return what the etcd members say, and why they could not be asked."""
    site = session.site
    try:
        context = session.etcd_context()
    except PkiError as error:
        return [], str(error)
    return ask_settled({host.name: host.address for host in site.group("etcd")}, context), ""


def ask_fsync(session: Session, members: Sequence[Member]) -> dict[str, float]:
    """Return how long writes of the log take on members' disks: p99 of fdatasync in seconds.

    Args:
        session: with the client certificate of etcd.
        members: that answered; others are left out.
    """
    asked = [member for member in members if not member.error]
    if not asked:
        return {}
    context = session.etcd_context()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda member: fsync_p99(member.address, context), asked)
    return {member.name: p99 for member, p99 in zip(asked, found, strict=True) if p99 is not None}


def ask_events(session: Session) -> list[Member]:
    """Return what the members of the etcd for events say, nothing where there is none."""
    hosts = session.site.group("etcd") if session.site.events_servers else []
    if not hosts:
        return []
    port = int(hosts[0].variables["etcd_events_client_port"])
    return ask_settled({host.name: host.address for host in hosts}, session.etcd_context(), port)


def look_here(session: Session, no_documents: str = "") -> Controller:
    """Return what the controller knows by itself.

    Args:
        session: the site's PKI store.
        no_documents: why there are none.
    """
    site = session.site
    built = Path(site.pki_store).expanduser().is_dir() and _or(session.store.exists, False)
    return Controller(
        lock_holder=site_lock.holder_of(site_lock.lock_file(site.pki_store)),
        open_plans=open_plans(site),
        authorities=_authorities(session) if built else {},
        no_documents=no_documents,
        built=built,
        rotating=_rotating(session) if built else {},
        tpms=read_tpms(session) if built else {},
        encryption=_or(session.store.encryption.state, Encryption()) if built else Encryption(),
    )


def _or[T](ask: Callable[[], T], otherwise: T) -> T:
    try:
        return ask()
    except PkiError:
        return otherwise


def _authorities(session: Session) -> dict[str, int]:
    from cryptography import x509

    found = {}
    for name in _AUTHORITIES:
        try:
            pem = session.store.ca(name).certificate_pem
        except PkiError:
            continue
        found[name] = int(x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc.timestamp())
    return found


def _rotating(session: Session) -> dict[str, str]:
    def stage_of(name: str) -> str:
        return _or(lambda: session.store.generations(name).stage, "")

    return {name: stage_of(name) for name in _AUTHORITIES}


def open_plans(site: Site) -> list[Content]:
    """Return the plan that was applied last from here, if that run did not end well."""
    folder = keep.kept_folder(site.name, "x").parent
    plans = sorted(_plans(folder) if folder.is_dir() else (), key=lambda plan: plan["begun"])
    return [plan for plan in plans[-1:] if not plan["ended"]]


def _plans(folder: Path) -> Iterator[Content]:
    for kept in folder.iterdir():
        try:
            text = (kept / keep.REPORT).read_text(encoding="utf-8")
            lines = [json.loads(line) for line in text.splitlines()]
            begun = max(line["time"] for line in lines if line["event"] == "begin")
            ends = [line for line in lines if line["event"] == "end" and line["time"] >= begun]
            # Without the ironspan command nobody writes an end: then only a failed host tells.
            expected = any(line.get("ends") for line in lines if line["time"] >= begun)
            ended = ends[-1]["code"] == 0 if ends else not (expected or _failed_since(lines, begun))
            plan = json.loads((kept / "plan.json").read_bytes())["plan"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        yield {
            "digest": kept.name,
            "file": str(kept / "plan.json"),
            "begun": begun,
            "expires": plan["expires"],
            "operation": plan["operation"],
            "arguments": plan["arguments"],
            "hosts": {
                name: {key: entry[key] for key in ("digest", "fingerprint")}
                for name, entry in plan["hosts"].items()
            },
            "ended": ended,
        }


def _failed_since(lines: list[Content], begun: int) -> bool:
    return any(line.get("failed") for line in lines if line["event"] == "host" and line["time"] >= begun)
