# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The control plane of a simulation: etcd, API server, controllers, scheduler, and kwok for the kubelets."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import os
import ssl
import time
import typing as t
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import (
    certificates,
    generate_key_file,
    open_store,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

from ironspan.lab.ports import free_port
from tests.integration.loopback_cluster import Control, find_programs, running
from tests.support import kwok
from tests.support.simulation.metrics import Scrape
from tests.support.simulation.settings import Settings

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
EVENTS = "events"
_API_METRICS = (
    "apiserver_request_duration_seconds_bucket",
    "apiserver_request_total",
    "apiserver_longrunning_requests",
    "apiserver_watch_events_total",
    "apiserver_watch_events_sizes_sum",
    "apiserver_flowcontrol_rejected_requests_total",
    "apiserver_terminated_watchers_total",
)
_ETCD_METRICS = ("etcd_mvcc_db_total_size", "etcd_server_quota", "etcd_disk_wal_fsync", "etcd_network_client")
_LEASE_SECONDS = 40
"""kubelet, default of nodeLeaseDurationSeconds; the lease is renewed four times within it."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass(frozen=True)
class Usage:
    """What a program has used so far: seconds of CPU, and MiB of memory now and at most."""

    cpu: float
    resident: float
    peak: float


class Plane:
    """A control plane that runs.

    Args:
        control: with its certificates and addresses.
        settings: of the size.
    """

    def __init__(self, control: Control, settings: Settings) -> None:
        self.control = control
        self.settings = settings
        self._metrics: dict[str, str] = {}
        self._fsync = True

    def start(self, *, events_apart: bool, fsync: bool) -> None:
        """Start everything and wait until the API server answers.

        Args:
            events_apart: events get an etcd of their own.
            fsync: etcd waits for the disk.
        """
        self._fsync = fsync
        options = [f"--{name}={value}" for name, value in self.settings.api_server.items()]
        (self.control.folder / "audit-policy.yaml").write_text(self.settings.audit_policy)
        options += [
            f"--audit-policy-file={self.control.folder}/audit-policy.yaml",
            f"--audit-log-path={self.control.folder}/audit.log",
        ]
        self._start_etcd("etcd-1", ["etcd-1"])
        if events_apart:
            network = self.control.address.rpartition(".")[0]
            self.control.members[EVENTS] = address = f"{network}.9"
            self._start_etcd(EVENTS, [EVENTS])
            # The API server keeps everything else in the others.
            del self.control.members[EVENTS]
            options.append(f"--etcd-servers-overrides=/events#https://{address}:{self.control.etcd_port}")
        self.control.start_api(*options)
        self.control.bind_administrators()
        self._let_kwok_be_every_kubelet()
        self._start_controllers()
        self._start_kwok()

    def api(self, name: str = "", groups: Sequence[str] = ()) -> Api:
        """Return a client: an administrator, or someone with a certificate of their own."""
        config = (
            self._config(name, groups)
            if name
            else self.control.store.admin_kubeconfig(self.control.endpoint, 1, self.control.address)
        )
        return Api.from_kubeconfig(config, self.control.folder / "tmp", 60)

    def files(self, name: str, groups: Sequence[str]) -> dict[str, str]:
        """Return paths of the authority, and of the certificate and key of someone, for another process."""
        self._config(name, groups)
        folder = self.control.folder / "api"
        file = name.replace(":", "-")
        return {
            "ca": f"{folder}/ca.crt",
            "certificate": f"{folder}/{file}.crt",
            "key": f"{folder}/{file}.key",
        }

    def tls(self, name: str, groups: Sequence[str]) -> ssl.SSLContext:
        """Return TLS with the certificate of someone, for a watch."""
        files = self.files(name, groups)
        context = ssl.create_default_context(cafile=files["ca"])
        context.load_cert_chain(files["certificate"], files["key"])
        return context

    def scrape(self) -> Scrape:
        """Return what the API server counts."""
        text = self.control.api(break_glass=True, patience=60).request("GET", "/metrics", timeout=60)
        return Scrape(text.decode(), _API_METRICS)

    def scrape_etcd(self, name: str = "etcd-1") -> Scrape:
        """Return what an etcd counts."""
        with urllib.request.urlopen(f"{self._metrics[name]}/metrics", timeout=60) as answer:
            return Scrape(answer.read().decode(), _ETCD_METRICS)

    def usage(self) -> dict[str, Usage]:
        """Return what every program has used so far."""
        return {name: _usage(process.pid) for name, process in self.control.processes.items()}

    # -- parts -------------------------------------------------------------------------------------

    def _start_etcd(self, name: str, cluster: Sequence[str]) -> None:
        address = self.control.members[name]
        self._metrics[name] = f"http://{address}:{free_port(address)}"
        quota = self.settings.profile.etcd_quota_bytes
        self.control.etcd_flags = [
            f"--listen-metrics-urls={self._metrics[name]}",
            f"--quota-backend-bytes={quota}",
            # The last one counts, and other tests' control planes do without.
            f"--unsafe-no-fsync={str(not self._fsync).lower()}",
        ]
        self.control.start_etcd(name, cluster, token=f"simulation-{name}")

    def _let_kwok_be_every_kubelet(self) -> None:
        """A kubelet may write its own Node only; kwok is one user in their group, and needs rights to all.

        It must be in that group: priority and fairness tells kubelets by it.
        """
        name = "simulated-kubelets"
        group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        self.api().apply(
            f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{name}",
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": name},
                "roleRef": role,
                "subjects": [group],
            },
        )

    def _start_controllers(self) -> None:
        folder = self.control.folder / "api"
        (folder / "ca.key").write_text(self.control.store.ca("kubernetes").key_pem())
        self.control.start(
            "controllers",
            "kube-controller-manager",
            f"--kubeconfig={self._kubeconfig('system:kube-controller-manager')}",
            f"--cluster-signing-cert-file={folder}/ca.crt",
            f"--cluster-signing-key-file={folder}/ca.key",
            f"--root-ca-file={folder}/ca.crt",
            f"--service-account-private-key-file={folder}/sa.key",
            "--use-service-account-credentials=true",
            "--allocate-node-cidrs=true",
            f"--cluster-cidr={self.settings.pod_cidr}",
            *self._local(),
            *(f"--{name}={value}" for name, value in self.settings.controller_manager.items()),
        )
        self.control.start(
            "scheduler",
            "kube-scheduler",
            f"--kubeconfig={self._kubeconfig('system:kube-scheduler')}",
            *self._local(),
            *(f"--{name}={value}" for name, value in self.settings.scheduler.items()),
        )

    def _start_kwok(self) -> None:
        stages = self.control.folder / "stages.yaml"
        stages.write_text(kwok.stages(self.settings.profile))
        self.control.start(
            "kwok",
            "kwok",
            f"--kubeconfig={self._kubeconfig('system:node:kwok', ['system:nodes'])}",
            f"--config={stages}",
            "--manage-all-nodes=true",
            f"--node-lease-duration-seconds={_LEASE_SECONDS}",
            f"--cidr={self.settings.pod_cidr}",
            f"--node-ip={self.control.address}",
        )

    def _local(self) -> list[str]:
        return [
            "--leader-elect=false",
            f"--bind-address={self.control.address}",
            f"--secure-port={free_port(self.control.address)}",
        ]

    def _config(self, name: str, groups: Sequence[str] = ()) -> dict[str, t.Any]:
        file = name.replace(":", "-")
        names = certificates.Names(name, groups)
        certificate, key = self.control.issue(file, names, ExtendedKeyUsageOID.CLIENT_AUTH)
        config = self.control.store.admin_kubeconfig(self.control.endpoint, 1, self.control.address)
        config["users"][0]["user"] = {
            "client-certificate-data": base64.b64encode(certificate.read_bytes()).decode(),
            "client-key-data": base64.b64encode(key.read_bytes()).decode(),
        }
        return config

    def _kubeconfig(self, name: str, groups: Sequence[str] = ()) -> Path:
        path = self.control.folder / "api" / f"{name.replace(':', '-')}.conf"
        path.write_text(json.dumps(self._config(name, groups)))
        return path


@contextlib.contextmanager
def plane(
    program: Path, settings: Settings, folder: Path, *, events_apart: bool, fsync: bool
) -> Iterator[Plane]:
    """Run a control plane on a loopback network of its own.

    Args:
        program: kwok.
        settings: of the size.
        folder: for data, keys and logs.
        events_apart: events get an etcd of their own.
        fsync: etcd waits for the disk.
    """
    programs = {**find_programs(names=PROGRAMS), "kwok": program}
    store = open_store(folder / "pki", generate_key_file(folder / "pki.key"))
    store.ensure_cas()
    with running(Control(programs, store, folder)) as control:
        started = Plane(control, settings)
        started.start(events_apart=events_apart, fsync=fsync)
        yield started


def wait_until(condition: t.Callable[[], bool], what: str, seconds: float) -> None:
    """Wait until something holds.

    Raises:
        TimeoutError: it does not.
    """
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.1)


def _usage(process: int) -> Usage:
    folder = Path("/proc") / str(process)
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
    return Usage(
        cpu=(int(fields[11]) + int(fields[12])) / _TICKS,
        resident=int(status["VmRSS"].split()[0]) / 1024,
        peak=int(status["VmHWM"].split()[0]) / 1024,
    )
