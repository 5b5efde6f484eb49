# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Tokens: RS256 JSON web tokens (RFC 7515, 7517, 7519), signed and verified."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from ironspan.lab import files

#: Seconds of difference between two clocks that Entra ID forgives.
LEEWAY_S = 300


class Refused(Exception):
    """A token is not what it should be; the message says in which way and holds nothing of the token."""


def encode(data: bytes) -> str:
    """Base64 as tokens have it: for URLs, without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _number(value: int) -> str:
    return encode(value.to_bytes((value.bit_length() + 7) // 8))


class Signer:
    """A key that signs tokens."""

    def __init__(self, key: rsa.RSAPrivateKey) -> None:
        self._key = key
        numbers = key.public_key().public_numbers()
        self._public = {"e": _number(numbers.e), "kty": "RSA", "n": _number(numbers.n)}
        # RFC 7638: the thumbprint of a key is made of exactly these members, in this order.
        self.kid = encode(hashlib.sha256(json.dumps(self._public, separators=(",", ":")).encode()).digest())

    @classmethod
    def at(cls, path: Path) -> Signer:
        """The key in the file `path`, made when it is not there."""
        if not path.exists():
            key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
            pem = key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            files.write_atomic(path, pem, 0o600)
        loaded = serialization.load_pem_private_key(path.read_bytes(), None)
        if not isinstance(loaded, rsa.RSAPrivateKey):
            raise Refused(f"{path} holds no RSA key")
        return cls(loaded)

    def jwk(self) -> dict[str, str]:
        """The public key as a JSON web key."""
        return {**self._public, "alg": "RS256", "kid": self.kid, "use": "sig"}

    def sign(self, claims: Mapping[str, Any]) -> str:
        """A token with these claims."""
        head = {"alg": "RS256", "kid": self.kid, "typ": "JWT"}
        text = compact(head, claims)
        signature = self._key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{text}.{encode(signature)}"


def compact(head: Mapping[str, Any], claims: Mapping[str, Any]) -> str:
    """Head and claims as they are signed."""
    return ".".join(encode(json.dumps(part).encode()) for part in (dict(head), dict(claims)))


def public_key(key: Mapping[str, str]) -> rsa.RSAPublicKey:
    """The key of a JSON web key."""
    return rsa.RSAPublicNumbers(*(int.from_bytes(_decode(key[part])) for part in ("e", "n"))).public_key()


def verify(token: str, keys: list[dict[str, str]], now: float) -> dict[str, Any]:
    """Return the claims of a token once its signature and its times hold.

    Args:
        token: The compact form.
        keys: JSON web keys; the token's `kid` chooses one.
        now: Unix seconds.

    Raises:
        Refused: Not a token, another algorithm, an unknown key, a wrong signature, not valid now.
    """
    parts = token.split(".")
    if len(parts) != 3:
        raise Refused("this is no JSON web token")
    try:
        head, claims = json.loads(_decode(parts[0])), json.loads(_decode(parts[1]))
        signature = _decode(parts[2])
    except ValueError as error:
        raise Refused("this is no JSON web token") from error
    if not isinstance(head, dict) or not isinstance(claims, dict) or head.get("alg") != "RS256":
        raise Refused("the token is not signed with RS256")
    key = next((key for key in keys if key["kid"] == head.get("kid")), None)
    if key is None:
        raise Refused("the token's key is unknown")
    try:
        public_key(key).verify(
            signature, f"{parts[0]}.{parts[1]}".encode(), padding.PKCS1v15(), hashes.SHA256()
        )
    except InvalidSignature as error:
        raise Refused("Signature validation failed. The token's signature is not the issuer's.") from error
    begins, ends = claims.get("nbf"), claims.get("exp")
    if not isinstance(begins, int | float) or not isinstance(ends, int | float):
        raise Refused("the token has no times")
    if now < begins - LEEWAY_S:
        raise Refused("Lifetime validation failed. The token is not yet valid.")
    if now > ends:
        raise Refused("Lifetime validation failed. The token is expired.")
    return claims
