# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A real control plane on loopback addresses: etcd members, kube-apiserver and kube-controller-manager.

The programs come out of the mirror's images and archives, or from the folder that IRONSPAN_TEST_BINARIES
names. Everything is signed by a real PKI store. Needs no root, no container, no network but loopback.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime
import functools
import json
import os
import secrets
import shutil
import subprocess
import tarfile
import tempfile
import time
import typing as t
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.tls import client_context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import Store, certificates
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

from ironspan.lab.ports import free_port
from tests.support.ports import free_network

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager")
VERSION = "1.36.4"
_ETCD_ARCHIVE = "github.com/etcd-io/etcd/releases/download/v3.6.14/etcd-v3.6.14-linux-amd64.tar.gz"


def find_programs(version: str = VERSION, names: Sequence[str] = PROGRAMS) -> dict[str, Path]:
    """Return the programs' paths; those out of the mirror are unpacked once for all tests of a process.

    Without them the test is skipped, or fails when IRONSPAN_REQUIRE_LAB is 1.
    """
    given = os.environ.get("IRONSPAN_TEST_BINARIES")
    if given:
        return {name: Path(given) / name for name in names}
    try:
        return {name: _unpacked(version, name) for name in names}
    except OSError as error:
        message = f"the mirror lacks a program for this test ({error}); run `ironspan artifacts build`"
        if os.environ.get("IRONSPAN_REQUIRE_LAB") == "1":
            pytest.fail(message)
        pytest.skip(message)


@functools.cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="isp-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def _unpacked(version: str, name: str) -> Path:
    """Unpack a program; with etcd the version is Kubernetes', too."""
    folder = _folder() / version
    folder.mkdir(exist_ok=True)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    mirror = cache / "ironspan" / "mirror"
    if name == "etcd":
        with tarfile.open(mirror / _ETCD_ARCHIVE) as archive:
            _take(archive, name, folder)
    else:
        image = mirror / "v2" / "registry.k8s.io" / name
        manifest = json.loads((image / "manifests" / f"v{version}").read_bytes())
        for layer in manifest["layers"]:
            with tarfile.open(image / "blobs" / layer["digest"]) as archive:
                _take(archive, name, folder)
    return (folder / name).resolve(strict=True)


def _take(archive: tarfile.TarFile, name: str, folder: Path) -> None:
    for member in archive:
        if member.isfile() and Path(member.name).name == name:
            source = archive.extractfile(member)
            assert source is not None
            with (folder / name).open("wb") as target:
                shutil.copyfileobj(source, target)
            (folder / name).chmod(0o755)


@contextlib.contextmanager
def address_on_loopback() -> Iterator[str]:
    """Give the loopback device an address that is none of 127.0.0.0/8, which a site's hosts may not have.

    Yields:
        Its first three numbers, in the network for tests of RFC 2544; the last one is 1. Needs root.
    """
    while True:
        network = f"198.18.{secrets.randbelow(250) + 1}"
        address = ["address", "add", f"{network}.1/32", "dev", "lo"]
        done = subprocess.run(["ip", *address], capture_output=True, text=True, check=False)
        if "exists" not in done.stderr and "already assigned" not in done.stderr:
            break  # else another process that runs tests has drawn it
    if done.returncode:
        message = f"this test needs root: {done.stderr.strip()}"
        if os.environ.get("IRONSPAN_REQUIRE_LAB") == "1":
            pytest.fail(message)
        pytest.skip(message)
    try:
        yield network
    finally:
        address[1] = "delete"
        subprocess.run(["ip", *address], check=True)


class Control:
    """Starts and ends the programs of one control plane.

    Args:
        programs: from ``find_programs``.
        store: signs everything.
        folder: for data, keys and logs.
        members: number of etcd members.
        network: first three numbers of their addresses; a free loopback network by default.

    Attributes:
        etcd_flags: further flags of every member.
        anonymous_flags: of the API server; none where a file says who may be anonymous.
    """

    etcd_flags: Sequence[str] = ()
    anonymous_flags: Sequence[str] = ("--anonymous-auth=false",)

    def __init__(
        self, programs: dict[str, Path], store: Store, folder: Path, members: int = 1, network: str = ""
    ) -> None:
        self.programs = programs
        self.store = store
        self.folder = folder
        network = network or free_network(2379)
        self.members = {f"etcd-{number}": f"{network}.{number}" for number in range(1, members + 1)}
        self.address = f"{network}.1"
        # A network of its own, so etcd's usual ports are free on it.
        self.etcd_port, self.peer_port = 2379, 2380
        self.api_port = free_port(self.address)
        self.second_api_port = 0
        self.endpoint = f"api.test.internal:{self.api_port}"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    # -- etcd --------------------------------------------------------------------------------------

    def start_etcd(
        self,
        name: str,
        cluster: Sequence[str] | None = None,
        token: str | None = None,
        joining: str = "",
    ) -> None:
        """Start one member; ``cluster`` names all members it begins with, ``joining`` is what it joins."""
        address = self.members[name]
        folder = self.folder / name
        key = folder / "server.key"
        if not key.exists():
            self.make_certificate(name)
        peers = [f"{n}=https://{self.members[n]}:{self.peer_port}" for n in cluster or self.members]
        tls = [f"--trusted-ca-file={folder}/ca.crt", f"--cert-file={folder}/server.crt", f"--key-file={key}"]
        self.start(
            name,
            "etcd",
            f"--name={name}",
            f"--data-dir={folder}/data",
            f"--initial-cluster-token={token or self.store.site_uid()}",
            f"--initial-cluster={joining or ','.join(peers)}",
            f"--initial-cluster-state={'existing' if joining else 'new'}",
            f"--initial-advertise-peer-urls=https://{address}:{self.peer_port}",
            f"--listen-peer-urls=https://{address}:{self.peer_port}",
            f"--listen-client-urls=https://{address}:{self.etcd_port}",
            f"--advertise-client-urls=https://{address}:{self.etcd_port}",
            *tls,
            "--client-cert-auth",
            *[flag.replace("--", "--peer-", 1) for flag in tls],
            "--peer-client-cert-auth",
            "--unsafe-no-fsync",
            *self.etcd_flags,
        )

    def make_certificate(self, name: str, *further: str) -> None:
        """Give a member another key and certificate, with further names; it reads them while it runs."""
        address, folder = self.members[name], self.folder / name
        folder.mkdir(exist_ok=True)
        key, request = folder / "server.key.new", folder / "server.csr"
        _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key)
        names = [name, *further]
        # On loopback peers connect from 127.0.0.1, and a member compares that with the certificate.
        addresses = [address, "127.0.0.1"]
        texts = [*(f"DNS:{each}" for each in names), *(f"IP:{each}" for each in addresses)]
        subject = ["-subj", f"/CN={name}", "-addext", f"subjectAltName={','.join(texts)}"]
        _openssl("req", "-new", "-key", key, "-out", request, *subject)
        expect: t.Any = {"common_name": name, "dns": names, "ips": addresses}
        pem = self.store.sign(request.read_text(), "etcd-server", expect)
        (folder / "ca.crt").write_text(self.store.ca("etcd").certificate_pem)
        (folder / "server.crt").write_text(pem)
        key.replace(folder / "server.key")

    def etcd_context(self) -> t.Any:
        """Return TLS as verify uses it: a client certificate made by the store."""
        pair = self.store.client_pair("etcd-client", "ironspan")
        return client_context(
            self.store.ca("etcd").certificate_pem, pair.certificate_pem, pair.key_pem, self.folder / "tmp"
        )

    # -- Kubernetes --------------------------------------------------------------------------------

    def start_api(self, *options: str) -> None:
        """Start the API server, with further options, and wait until it is ready."""
        folder = self.folder / "api"
        folder.mkdir()
        (folder / "ca.crt").write_text(self.store.ca("kubernetes").certificate_pem)
        (folder / "etcd-ca.crt").write_text(self.store.ca("etcd").certificate_pem)
        (folder / "sa.pub").write_text(self.store.service_account_public_key())
        (folder / "sa.key").write_text(self.store.service_account_key())
        etcd = self.store.client_pair("apiserver-etcd-client", "kube-apiserver-etcd-client")
        (folder / "etcd.crt").write_text(etcd.certificate_pem)
        (folder / "etcd.key").write_text(etcd.key_pem)
        server = ExtendedKeyUsageOID.SERVER_AUTH
        # Its name only: who dials the address must check the name, as tls-server-name asks.
        self.issue("server", certificates.Names("kube-apiserver", dns=["api.test.internal"]), server)
        self._start_api("api", self.api_port, options)

    def start_second_api(self, *options: str) -> None:
        """Start another API server on the same store, and wait until it is ready."""
        self.second_api_port = free_port(self.address)
        self._start_api("api-2", self.second_api_port, options)

    def _start_api(self, name: str, port: int, options: Sequence[str]) -> None:
        folder = self.folder / "api"
        members = ",".join(f"https://{address}:{self.etcd_port}" for address in self.members.values())
        self.start(
            name,
            "kube-apiserver",
            f"--etcd-servers={members}",
            f"--etcd-cafile={folder}/etcd-ca.crt",
            f"--etcd-certfile={folder}/etcd.crt",
            f"--etcd-keyfile={folder}/etcd.key",
            f"--bind-address={self.address}",
            f"--advertise-address={self.address}",
            f"--secure-port={port}",
            f"--tls-cert-file={folder}/server.crt",
            f"--tls-private-key-file={folder}/server.key",
            f"--client-ca-file={folder}/ca.crt",
            *self.anonymous_flags,
            "--authorization-mode=Node,RBAC",
            "--service-cluster-ip-range=10.96.0.0/24",
            f"--service-account-issuer=https://{self.endpoint}",
            f"--service-account-key-file={folder}/sa.pub",
            f"--service-account-signing-key-file={folder}/sa.key",
            "--endpoint-reconciler-type=none",
            *options,
        )
        self.wait(lambda: self.api(break_glass=True, port=port).text("/readyz") == "ok")

    def start_controllers(self, *more: str) -> None:
        """Start the controllers that the tests watch at work: they sign requests and empty namespaces."""
        folder = self.folder / "api"
        (folder / "ca.key").write_text(self.store.ca("kubernetes").key_pem())
        config = self.store.admin_kubeconfig(self.endpoint, 1, self.address, break_glass=True)
        (folder / "controllers.conf").write_text(json.dumps(config))
        controllers = [
            "certificatesigningrequest-approving-controller",
            "certificatesigningrequest-signing-controller",
            "namespace-controller",
            "serviceaccount-controller",
            "token-cleaner-controller",
            *more,
        ]
        self.start(
            "controllers",
            "kube-controller-manager",
            f"--kubeconfig={folder}/controllers.conf",
            f"--controllers={','.join(controllers)}",
            f"--cluster-signing-cert-file={folder}/ca.crt",
            f"--cluster-signing-key-file={folder}/ca.key",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={free_port('127.0.0.1')}",
        )

    def api(self, *, break_glass: bool = False, patience: float = 5, port: int = 0) -> Api:
        """Return a client as the action plugins make it, by default of the first API server."""
        endpoint = f"api.test.internal:{port or self.api_port}"
        config = self.store.admin_kubeconfig(endpoint, 1, self.address, break_glass)
        return Api.from_kubeconfig(config, self.folder / "tmp", patience)

    def issue(self, name: str, names: certificates.Names, usage: x509.ObjectIdentifier) -> tuple[Path, Path]:
        """Make a certificate of the kubernetes authority for a part that kubeadm would make one for."""
        authority = self.store.ca("kubernetes")
        key = certificates.new_key()
        made = certificates.issue(
            x509.load_pem_x509_certificate(authority.certificate_pem.encode()),
            t.cast("t.Any", serialization.load_pem_private_key(authority.key_pem().encode(), None)),
            key.public_key(),
            names,
            [usage],
            datetime.timedelta(hours=1),
            datetime.datetime.now(datetime.UTC),
        )
        paths = self.folder / "api" / f"{name}.crt", self.folder / "api" / f"{name}.key"
        paths[0].write_text(certificates.certificate_pem(made))
        paths[1].write_bytes(certificates.private_pem(key))
        return paths

    def bind_administrators(self) -> None:
        """Do what ``kubeadm init`` does: bind the controller's group to cluster-admin. Then that holds."""
        group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "kubeadm:cluster-admins"}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        self.api(break_glass=True).apply(
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/kubeadm:cluster-admins",
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "kubeadm:cluster-admins"},
                "roleRef": role,
                "subjects": [group],
            },
        )
        # The API server hears of it a moment after it has answered.
        self.wait(lambda: "items" in self.api().get("/api/v1/nodes"))

    # -- processes ---------------------------------------------------------------------------------

    def start(self, name: str, program: str, *arguments: str) -> None:
        """Start a program with its output in a log file."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(self.programs[program]), *arguments], stdout=log, stderr=log, cwd=self.folder
            )

    def stop(self, name: str) -> None:
        """End one program."""
        process = self.processes.pop(name)
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def wait[Found](self, condition: t.Callable[[], Found], seconds: float = 120) -> Found:
        """Wait until something holds and return it; fails with the end of every log when it does not.

        Args:
            condition: called again and again, until it returns something true.
            seconds: after which the test fails: more than a busy machine takes for anything.
        """
        end = time.monotonic() + seconds
        while True:
            with contextlib.suppress(ClusterError):
                if found := condition():
                    return found
            if time.monotonic() > end or any(p.poll() is not None for p in self.processes.values()):
                logs = [f"--- {path}\n{path.read_text()[-3000:]}" for path in self.folder.glob("*.log")]
                pytest.fail("the control plane does not come up:\n" + "\n".join(logs))
            time.sleep(0.2)


@contextlib.contextmanager
def running(control: Control) -> Iterator[Control]:
    """End everything that was started, at once: nothing of it is used again."""
    try:
        yield control
    finally:
        for process in reversed(control.processes.values()):
            process.kill()
        for process in control.processes.values():
            process.wait()


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
