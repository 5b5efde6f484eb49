# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A small Key Vault with real RSA keys, over TLS: get, and unwrap. No signature of a token is checked."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import http.server
import json
import re
import ssl
import threading
import time
import typing as t
from collections.abc import Iterator
from pathlib import Path

from azure.core.credentials import AccessToken
from azure.keyvault.keys import KeyClient
from azure.keyvault.keys.crypto import CryptographyClient
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from ironspan.azure.keyvault import VaultKeys
from ironspan.azure.private_endpoint import transport
from ironspan.lab.azure import certificates, config

NAME = "etcd-backup"
_PATH = re.compile(r"/keys/(?P<name>[^/?]+)(/(?P<version>[^/?]*))?(/(?P<verb>unwrapkey))?(\?|$)")
_OAEP = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), None)


class Token:
    """A credential whose tokens the vault does not look into."""

    def get_token(self, *scopes: str, **kwargs: t.Any) -> AccessToken:
        """Return a token that is good for an hour."""
        return AccessToken("token", int(time.time()) + 3600)


@dataclasses.dataclass
class Vault:
    """What the vault has, and what it answers instead while ``refusal`` is set: status, code, inner code.

    While it is ``away`` it ends every connection without an answer.
    """

    url: str = ""
    ca: Path = Path()
    versions: dict[str, rsa.RSAPrivateKey] = dataclasses.field(default_factory=dict)
    disabled: set[str] = dataclasses.field(default_factory=set)
    refusal: tuple[int, str, str] | None = None
    away: bool = False
    requests: list[str] = dataclasses.field(default_factory=list)

    def rotate(self) -> str:
        """Make a new version and return its name."""
        version = f"{len(self.versions) + 1:032x}"
        self.versions[version] = rsa.generate_private_key(65537, 2048)
        return version

    def keys(self, cache: Path, **options: t.Any) -> VaultKeys:
        """Return the keys of this vault, as ``open_key_vault`` makes them."""
        client: dict[str, t.Any] = {
            "transport": transport(private=True, ca=str(self.ca), read_s=60),
            "retry_total": 0,
            "verify_challenge_resource": False,
        }

        def cryptography(version: str) -> CryptographyClient:
            return CryptographyClient(f"{self.url}/keys/{NAME}/{version}", Token(), **client)

        keys = KeyClient(self.url, Token(), **client)
        return VaultKeys(keys, NAME, cryptography, cache, delays=(0.01,), **options)

    def answer(self, method: str, path: str, body: t.Any) -> tuple[int, t.Any]:
        """Return status and document of a request."""
        self.requests.append(f"{method} {path.partition('?')[0]}")
        if self.refusal:
            status, code, inner = self.refusal
            return status, _error(code, "refused", inner)
        match = _PATH.match(path)
        version = match and (match["version"] or (list(self.versions) or [""])[-1])
        if match is None or match["name"] != NAME or version not in self.versions:
            return 404, _error("KeyNotFound", "A key was not found in this key vault.")
        key = self.versions[version]
        if match["verb"]:
            if version in self.disabled:
                return 403, _error(
                    "Forbidden", "Operation unwrapKey is not allowed on a disabled key.", "KeyDisabled"
                )
            try:
                plain = key.decrypt(_decoded(body["value"]), _OAEP)
            except ValueError:
                return 400, _error("BadParameter", "The parameter is incorrect.")
            return 200, {"kid": f"{self.url}/keys/{NAME}/{version}", "value": _encoded(plain)}
        numbers = key.public_key().public_numbers()
        described = {
            "kid": f"{self.url}/keys/{NAME}/{version}",
            "kty": "RSA",
            "key_ops": ["wrapKey", "unwrapKey"],
            "n": _encoded(numbers.n.to_bytes(256, "big")),
            "e": _encoded(numbers.e.to_bytes(3, "big")),
        }
        return 200, {"key": described, "attributes": {"enabled": version not in self.disabled}}


def _error(code: str, message: str, inner: str = "") -> dict[str, t.Any]:
    return {"error": {"code": code, "message": message, **({"innererror": {"code": inner}} if inner else {})}}


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@contextlib.contextmanager
def running(folder: Path, address: str = "127.0.0.1") -> Iterator[Vault]:
    """Run a vault until the block ends.

    Args:
        folder: for its certificates.
        address: where it listens; clients name it by this address.
    """
    vault = Vault()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            if vault.away:
                self.close_connection = True
                return
            if "Authorization" not in self.headers:
                self._send(401, {})
                return
            self._send(*vault.answer(self.command, self.path, json.loads(body or b"{}")))

        do_POST = do_GET

        def _send(self, status: int, document: t.Any) -> None:
            data = json.dumps(document).encode()
            self.send_response(status)
            if status == 401:
                challenge = (
                    'Bearer authorization="https://login.example/t", resource="https://vault.azure.net"'
                )
                self.send_header("WWW-Authenticate", challenge)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments: object) -> None:
            pass

    certificates.ensure(folder, ["localhost"], [address])
    server = http.server.ThreadingHTTPServer((address, 0), Handler)
    server.daemon_threads = True
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*config.server(folder))
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    vault.url, vault.ca = f"https://{address}:{server.server_address[1]}", config.authority(folder)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield vault
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
