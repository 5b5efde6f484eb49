# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A Kubernetes API on a loopback port that keeps objects in memory and can be told to misbehave.

TLS with the site's own authority, client certificates wanted, server-side apply and merge patches of plain
objects: what ironspan's client uses, no more. Joining hosts are folders on disk, see ``Joins``.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import dataclasses
import datetime
import http.server
import json
import re
import ssl
import tempfile
import threading
import time
import typing as t
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import Store, certificates, profiles
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Object = dict[str, t.Any]
NODES = "/api/v1/nodes"
SECRETS = "/api/v1/namespaces/kube-system/secrets"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SERVING_AFTER_S = 0.3
"""How long after joining a kubelet asks for its serving certificate."""


@dataclasses.dataclass(frozen=True)
class Fault:
    """How one request goes wrong.

    Args:
        status: answered instead of doing anything; 0: do it as usual.
        cut: bytes of the answer that are sent before the connection is reset; None: all of it.
        slow_s: seconds before the answer.
        body: sent instead of the answer.
        forget: answer as if it were done, and do nothing.
        close: reset the connection before anything was done.
    """

    status: int = 0
    cut: int | None = None
    slow_s: float = 0
    body: bytes | None = None
    forget: bool = False
    close: bool = False


Choose = Callable[[str, str], Fault | None]
"""Called with method and path of every request."""


def server_files(
    store: Store,
    folder: Path,
    name: str,
    not_before: datetime.timedelta = datetime.timedelta(),
    lifetime: datetime.timedelta = datetime.timedelta(days=1),
    authority: str = "kubernetes",
    ips: t.Sequence[str] = (),
) -> Path:
    """Write key and certificate of a server into one file and return it.

    Args:
        store: whose authority signs.
        folder: where.
        name: the DNS name in the certificate.
        not_before: when its life begins, from now on (negative: in the past).
        lifetime: how long it lives.
        authority: which one signs.
        ips: addresses in the certificate.
    """
    key = certificates.new_key()
    made = store.ca(authority)
    signer = serialization.load_pem_private_key(made.key_pem().encode(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    issued = certificates.issue(
        x509.load_pem_x509_certificate(made.signing_pem.encode()),
        signer,
        key.public_key(),
        certificates.Names(name, dns=[name], ips=ips),
        [ExtendedKeyUsageOID.SERVER_AUTH],
        lifetime,
        # The certificate's life begins a little before "now", and not before its authority's.
        datetime.datetime.now(datetime.UTC) + not_before + profiles.BACKDATE,
    )
    file = folder / "server.pem"
    file.write_bytes(
        certificates.private_pem(key) + issued.public_bytes(serialization.Encoding.PEM),
    )
    return file


class Joins:
    """Hosts that have joined: a file a host, written by the stand-in for kubeadm.

    Args:
        folder: with ``joined/``.
        addresses: host -> the address in its serving certificate.
    """

    def __init__(self, folder: Path, addresses: Mapping[str, str]) -> None:
        self.folder = folder
        self.addresses = addresses
        self._known: dict[str, int] = {}
        (folder / "joined").mkdir(parents=True, exist_ok=True)

    def look(self, objects: dict[str, Object]) -> None:
        """Bring nodes and certificate requests up to date with the hosts."""
        for file in sorted((self.folder / "joined").iterdir()):
            changed = file.stat().st_mtime_ns
            name, joined = file.name, changed / 1e9
            if self._known.get(name) != changed:
                self._known[name] = changed
                node = {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {"name": name, "resourceVersion": "1"},
                }
                objects.setdefault(f"{NODES}/{name}", node)
                _request(objects, f"client-{name}-{changed}", name, joined, [])
            serving = f"serving-{name}-{changed}"
            if time.time() > joined + SERVING_AFTER_S and f"{REQUESTS}/{serving}" not in objects:
                _request(objects, serving, name, joined + SERVING_AFTER_S, [self.addresses[name]])


def _request(objects: dict[str, Object], name: str, node: str, made: float, addresses: list[str]) -> None:
    serving = bool(addresses)
    subject = [("O", "system:nodes"), ("CN", f"system:node:{node}")]
    oids = {"O": NameOID.ORGANIZATION_NAME, "CN": NameOID.COMMON_NAME}
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.NameAttribute(oids[key], value) for key, value in subject])
    )
    if serving:
        import ipaddress

        alternatives: list[x509.GeneralName] = [x509.DNSName(node)]
        alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    pem = builder.sign(certificates.new_key(), hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    kind = "kubelet-serving" if serving else "kube-apiserver-client-kubelet"
    objects[f"{REQUESTS}/{name}"] = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {
            "name": name,
            "uid": f"uid-{time.monotonic_ns()}",
            "resourceVersion": "1",
            "creationTimestamp": f"{datetime.datetime.fromtimestamp(made, datetime.UTC):%Y-%m-%dT%H:%M:%SZ}",
        },
        "spec": {
            "request": base64.b64encode(pem).decode(),
            "signerName": f"kubernetes.io/{kind}",
            "username": f"system:node:{node}",
            "groups": ["system:nodes"] if serving else ["system:nodes", "ironspan:joining"],
            "usages": ["digital signature", "server auth" if serving else "client auth"],
        },
        "status": {} if serving else {"conditions": [{"type": "Approved", "status": "True"}]},
    }


class FakeApi:
    """The server; a context manager. ``objects`` is path -> object, ``signs``: approved requests are signed.

    Args:
        certificate: file with key and certificate, from ``server_files``; None serves plain HTTP.
        authority_pem: who signs clients' certificates; None: any client may come.
        joins: hosts that join.
        address: to listen on.
        port: to listen on; 0 for any that is free.
    """

    def __init__(
        self,
        certificate: Path | None = None,
        authority_pem: str | None = None,
        joins: Joins | None = None,
        address: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.objects: dict[str, Object] = {}
        self.asked: list[str] = []
        self.fault: Choose = lambda method, path: None
        self.joins = joins
        self.signs = True
        self._lock = threading.RLock()
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30

            def handle_one_request(self) -> None:
                with contextlib.suppress(ssl.SSLError, ConnectionError):
                    super().handle_one_request()
                    return
                self.close_connection = True

            def log_message(self, format: str, *arguments: object) -> None:
                pass

            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                content = self.rfile.read(length)
                api._answer(self, json.loads(content) if content else None)

            do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = answer

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: t.Any, client_address: t.Any) -> None:
                pass

        self._server = Server((address, port), Handler)
        self.port = int(self._server.server_address[1])
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            if authority_pem:
                context.load_verify_locations(cadata=authority_pem)
                context.verify_mode = ssl.CERT_REQUIRED
            # The handshake is the connection's own thread's: a slow client must not hold up the others.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    def __enter__(self) -> t.Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    # -- objects -----------------------------------------------------------------------------------

    def names(self, folder: str) -> list[str]:
        """Return the names of the objects in a collection."""
        with self._lock:
            self._look()
            return sorted(
                path.rpartition("/")[2] for path in self.objects if path.rpartition("/")[0] == folder
            )

    def ask(self, method: str, path: str, body: Object | None = None) -> tuple[int, t.Any]:
        """Do a request without a connection and without faults; return its status and its answer."""
        with self._lock:
            status, content = self._do(method, path, copy.deepcopy(body), {}, "application/json")
            return status, copy.deepcopy(content)

    def _look(self) -> None:
        if self.joins:
            self.joins.look(self.objects)

    def _answer(self, handler: http.server.BaseHTTPRequestHandler, body: Object | None) -> None:
        url = urllib.parse.urlsplit(handler.path)
        method, path = handler.command, url.path
        self.asked.append(f"{method} {path}")
        fault = self.fault(method, path) or Fault()
        if fault.close:
            _reset(handler)
            return
        time.sleep(fault.slow_s)
        if fault.status:
            answer: tuple[int, t.Any] = (fault.status, _status(fault.status, "injected", "out of order"))
        elif fault.forget:
            answer = (200, body or {"kind": "Status", "status": "Success"})
        else:
            with self._lock:
                self._look()
                query = dict(urllib.parse.parse_qsl(url.query))
                dry = "dryRun" in query
                kept = json.dumps(self.objects) if dry else ""
                answer = self._do(method, path, body, query, handler.headers.get("Content-Type", ""))
                if dry:
                    self.objects = json.loads(kept)
        status, content = answer
        data = fault.body if fault.body is not None else _encoded(content)
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data if fault.cut is None else data[: fault.cut])
        if fault.cut is not None:
            _reset(handler)

    def _do(
        self, method: str, path: str, body: Object | None, query: Mapping[str, str], kind: str
    ) -> tuple[int, t.Any]:
        there = self.objects.get(path)
        if path == "/version":
            return 200, {"gitVersion": "v1.36.4"}
        if path in ("/readyz", "/livez"):
            return 200, "ok"
        if path.endswith("/proxy/healthz"):
            return (200, "ok") if self._serves(path.split("/")[-3]) else (502, "no serving certificate")
        if method == "GET":
            if there is not None:
                return 200, there
            if re.search(r"/v\d\w*(/namespaces/[^/]+)?/[a-z]+$", path):
                return 200, {"items": self._list(path, query)}
            return 404, _status(404, "NotFound", f"{path} not found")
        if method == "DELETE":
            if self.objects.pop(path, None) is None:
                return 404, _status(404, "NotFound", f"{path} not found")
            return 200, _status(200, "", "deleted")
        assert body is not None
        if method == "POST":
            name = body["metadata"].get("name") or f"{body['metadata']['generateName']}{len(self.objects)}"
            body["metadata"]["name"] = name
            if f"{path}/{name}" in self.objects:
                return 409, _status(409, "AlreadyExists", f"{name} already exists")
            return 201, self._put(f"{path}/{name}", body)
        if method == "PUT":
            about = self.objects.get(path.removesuffix("/approval").removesuffix("/status"))
            if about is None:
                return 404, _status(404, "NotFound", f"{path} not found")
            if any(
                body["metadata"].get(name) not in (None, about["metadata"].get(name))
                for name in ("uid", "resourceVersion")
            ):
                return 409, _status(409, "Conflict", "the object has been modified")
            if self.signs and path.endswith("/approval") and _is_approved(body):
                body["status"]["certificate"] = "signed"
            return 200, self._put(path.removesuffix("/approval").removesuffix("/status"), body)
        if "apply-patch" in kind:
            made = _merged(there or {}, body)
            labels: Object = {f"f:{name}": {} for name in body["metadata"].get("labels", {})}
            made["metadata"]["managedFields"] = [
                {
                    "manager": query.get("fieldManager", ""),
                    "operation": "Apply",
                    "fieldsV1": {"f:metadata": {"f:labels": labels}},
                }
            ]
            return (200 if there else 201), self._put(path, made)
        if there is None:
            return 404, _status(404, "NotFound", f"{path} not found")
        expected = body.get("metadata", {}).get("resourceVersion")
        if expected and expected != there["metadata"].get("resourceVersion"):
            return 409, _status(409, "Conflict", "the object has been modified")
        return 200, self._put(path, _merged(there, body))

    def _serves(self, node: str) -> bool:
        return any(
            path.startswith(f"{REQUESTS}/serving-{node}-") and body["status"].get("certificate")
            for path, body in self.objects.items()
        )

    def _list(self, path: str, query: Mapping[str, str]) -> list[Object]:
        wanted = dict(part.split("=", 1) for part in query.get("labelSelector", "").split(",") if part)
        return [
            _as_stored(body)
            for name, body in sorted(self.objects.items())
            if name.rpartition("/")[0] == path
            and wanted.items() <= body["metadata"].get("labels", {}).items()
        ]

    def _put(self, path: str, body: Object) -> Object:
        before = self.objects.get(path, {}).get("metadata", {})
        body["metadata"]["resourceVersion"] = str(int(before.get("resourceVersion") or 0) + 1)
        body["metadata"].setdefault("uid", before.get("uid") or f"uid-{time.monotonic_ns()}")
        self.objects[path] = body
        return body


def _is_approved(request: Object) -> bool:
    return any(condition["type"] == "Approved" for condition in request["status"]["conditions"])


def _as_stored(body: Object) -> Object:
    """Return a secret as the API does: text is encoded."""
    if "stringData" not in body:
        return body
    data = {name: base64.b64encode(text.encode()).decode() for name, text in body["stringData"].items()}
    return {**{name: value for name, value in body.items() if name != "stringData"}, "data": data}


def _merged(before: Object, patch: Object) -> Object:
    result = dict(before)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            inside = result.get(name)
            result[name] = _merged(inside if isinstance(inside, dict) else {}, value)
        else:
            result[name] = value
    return result


def _status(code: int, reason: str, message: str) -> Object:
    return {"kind": "Status", "code": code, "reason": reason, "message": message}


def _encoded(content: t.Any) -> bytes:
    return content.encode() if isinstance(content, str) else json.dumps(content).encode()


def _reset(handler: http.server.BaseHTTPRequestHandler) -> None:
    """End the connection as a machine that lost power behind a load balancer does: with a reset."""
    import socket
    import struct

    with contextlib.suppress(OSError):
        handler.wfile.flush()
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        handler.connection.close()
    handler.close_connection = True


@contextlib.contextmanager
def api_of(
    store: Store,
    name: str,
    joins: Joins | None = None,
    address: str = "127.0.0.1",
    port: int = 0,
    **life: t.Any,
) -> t.Iterator[FakeApi]:
    """Serve an API of a site.

    Args:
        store: the site's.
        name: the host name of its endpoint.
        joins: hosts that join.
        address: to listen on.
        port: to listen on.
        life: see ``server_files``.
    """
    with tempfile.TemporaryDirectory(prefix="isf-") as folder:
        certificate = server_files(store, Path(folder), name, **life)
        with FakeApi(certificate, store.ca("kubernetes").certificate_pem, joins, address, port) as api:
            yield api
