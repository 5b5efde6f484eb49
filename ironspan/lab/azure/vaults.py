# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Key vaults that an estate declares, with real RSA keys that never leave them: read, wrap, unwrap.

Paths, challenges and errors: "Key Vault REST API reference", keys (Microsoft Learn).
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from ironspan.lab import files
from ironspan.lab.azure import settings, tokens
from ironspan.lab.azure.arm.rights import KEYS, may
from ironspan.lab.azure.arm.rules.services import VAULT
from ironspan.lab.azure.arm.state import Resource, State
from ironspan.lab.azure.http import Request, Response
from ironspan.lab.azure.world import World

_AUDIENCE = "https://vault.azure.net"
_PATH = re.compile(r"/keys/(?P<name>[A-Za-z0-9-]+)(/(?P<version>[0-9a-f]*))?(/(?P<verb>[a-z]+))?/?\Z")
_VERBS = {"wrapkey": ("wrapKey", "wrap/action"), "unwrapkey": ("unwrapKey", "unwrap/action")}
_PADDINGS = {
    "RSA-OAEP-256": padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), None),
    "RSA-OAEP": padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None),
}


def _answer(status: int, document: Any, headers: dict[str, str] | None = None) -> Response:
    kept = {
        "content-type": "application/json; charset=utf-8",
        "x-ms-request-id": secrets.token_hex(16),
        **(headers or {}),
    }
    return Response(status, kept, json.dumps(document).encode())


def _error(status: int, code: str, message: str, inner: str = "") -> Response:
    more = {"innererror": {"code": inner}} if inner else {}
    return _answer(status, {"error": {"code": code, "message": message, **more}})


def _failure(status: int, headers: dict[str, str]) -> Response:
    return _answer(status, {"error": {"code": "Throttled", "message": "fault"}}, headers)


class Vaults:
    """The data plane of all vaults."""

    def __init__(self, world: World, state: State) -> None:
        self._world = world
        self._state = state

    async def __call__(self, request: Request) -> Response:
        """Answer one request."""
        return await self._world.served("vault", request, self._serve, _failure, faults_of="store")

    async def _serve(self, request: Request) -> Response:
        text = await request.all()
        name = request.headers.get("host", "").partition(".")[0].lower()
        vault = next(
            (one for one in self._state.of_type(VAULT) if str(one.document["name"]).lower() == name), None
        )
        if vault is None:
            return _error(404, "VaultNotFound", f"The vault {name!r} does not exist.")
        closed = str(vault.properties.get("publicNetworkAccess", "Enabled")).lower() != "enabled"
        if closed and vault.key not in request.private:
            message = "Public network access is disabled and request is not from a private link."
            return _error(403, "Forbidden", message, "ForbiddenByConnection")
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        tenant = f"https://{settings.LOGIN_HOST}/{settings.TENANT}"
        challenge = {"www-authenticate": f'Bearer authorization="{tenant}", resource="{_AUDIENCE}"'}
        if scheme != "Bearer":
            return _answer(401, {"error": {"code": "Unauthorized", "message": "no token"}}, challenge)
        try:
            claims = self._world.verify(token, (_AUDIENCE,))
        except tokens.Refused as reason:
            return _answer(401, {"error": {"code": "Unauthorized", "message": str(reason)}}, challenge)
        found = _PATH.match(request.path)
        if found is None:
            return _error(404, "ResourceNotFound", "The lab's vaults have keys only.")
        try:
            body = json.loads(text or b"{}")
            return self._key(request.method, vault, found.groupdict(), str(claims.get("oid")), body)
        except (ValueError, TypeError, KeyError, AttributeError):
            return _error(400, "BadParameter", "The parameter is incorrect.")

    def _key(
        self, method: str, vault: Resource, asked: dict[str, Any], who: str, body: dict[str, Any]
    ) -> Response:
        place = f"{vault.id}/keys/{asked['name']}"
        version, verb = asked["version"] or "", asked["verb"] or ""
        if (method, verb) != ("GET", "") and (method != "POST" or verb not in _VERBS):
            return _error(404, "ResourceNotFound", f"The lab's vaults know no {verb or method}.")
        operation, action = _VERBS.get(verb, ("", "read"))
        if not may(self._state, who, place, f"{KEYS}/{action}"):
            message = f"Caller is not authorized to perform action on resource. Action: {KEYS}/{action}"
            return _error(403, "Forbidden", message, "ForbiddenByRbac")
        key = self._state.find(place)
        current = "" if key is None else str(key.properties["keyUriWithVersion"]).rpartition("/")[2]
        if key is None or version not in ("", current):
            return _error(404, "KeyNotFound", f"A key with (name/id) {asked['name']} was not found.")
        about, private = key.properties, self._private(key)
        uri = f"{about['keyUri']}/{current}"
        if not verb:
            return _answer(200, {"key": _public(uri, about, private), "attributes": about["attributes"]})
        if not about["attributes"].get("enabled", True):
            return _error(
                403, "Forbidden", f"Operation {operation} is not allowed on a disabled key.", "KeyDisabled"
            )
        if operation not in about["keyOps"]:
            message = f"Operation {operation} is not permitted on this key."
            return _error(403, "Forbidden", message, "KeyOperationForbidden")
        padded = _PADDINGS[str(body["alg"])]
        data = _decoded(str(body["value"]))
        if verb == "wrapkey":
            return _answer(200, {"kid": uri, "value": _encoded(private.public_key().encrypt(data, padded))})
        return _answer(200, {"kid": uri, "value": _encoded(private.decrypt(data, padded))})

    def _private(self, key: Resource) -> rsa.RSAPrivateKey:
        """Return the private half, which is made when it is first needed."""
        known = hashlib.sha256(f"{key.key} {key.created}".encode()).hexdigest()[:40]
        file = self._world.folder / "keys" / f"vault-{known}.pem"
        if not file.exists():
            fresh = rsa.generate_private_key(65537, int(key.properties.get("keySize") or 2048))
            pem = fresh.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            files.write_atomic(file, pem, 0o600)
        found = serialization.load_pem_private_key(file.read_bytes(), None)
        if not isinstance(found, rsa.RSAPrivateKey):
            raise TypeError(f"{file} holds no RSA key")
        return found


def _public(uri: str, about: dict[str, Any], private: rsa.RSAPrivateKey) -> dict[str, Any]:
    numbers = private.public_key().public_numbers()
    return {
        "kid": uri,
        "kty": about.get("kty", "RSA"),
        "key_ops": about["keyOps"],
        "n": _encoded(numbers.n.to_bytes((numbers.n.bit_length() + 7) // 8, "big")),
        "e": _encoded(numbers.e.to_bytes(3, "big")),
    }


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
