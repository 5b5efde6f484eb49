# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Signs images of the mirror the way cosign does, where nodes look for it: docs/hardening.md.

A signature is an image of its own, REPOSITORY:sha256-HEX.sig. Each layer is a payload that names the image's
digest and the repository it was signed under; an annotation of the layer has the signature (cosign's
SIGNATURE_SPEC.md).
"""

from __future__ import annotations

import base64
import json
import pathlib
import typing as t

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from ironspan.artifacts import cache, image
from ironspan.cli.outcome import CommandError, Exit

PAYLOAD = "application/vnd.dev.cosign.simplesigning.v1+json"
SIGNATURE = "dev.cosignproject.cosign/signature"

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def read_key(path: pathlib.Path) -> PrivateKey:
    """Return a private key.

    Args:
        path: PEM file with an EC or RSA key, without a passphrase.

    Raises:
        CommandError: there is no such key in it (exit 2).
    """
    remedy = "Make one with `openssl ecparam -name prime256v1 -genkey -noout -out FILE`."
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        # What the library says may quote the file; the kind of mistake does.
        raise CommandError(
            f"{path} holds no private key that can be used ({type(error).__name__})", remedy, Exit.BAD_INPUT
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise CommandError(f"{path} is neither an EC nor an RSA key", remedy, Exit.BAD_INPUT)
    return key


def image_of(reference: str, place: cache.Cache) -> tuple[str, str]:
    """Return repository (with the registry) and digest of an image that the mirror has.

    Args:
        reference: REGISTRY/REPOSITORY:TAG, or with @DIGEST instead of the tag.
        place: the cache with the mirror.

    Raises:
        CommandError: the mirror has no such image (exit 2).
    """
    if "@" in reference:
        repository, _, name = reference.partition("@")
    else:
        repository, _, name = reference.rpartition(":")
    if repository and "/" not in name and ".." not in reference.split("/"):
        for folder in image.MANIFEST_FOLDERS.values():
            manifest = place.below_mirror(f"/v2/{repository}/{folder}/{name}")
            if manifest.is_file():
                return repository, image.digest(manifest.read_bytes())
    raise CommandError(
        f"the mirror has no image {reference!r}",
        "Write it with registry and tag, as `ironspan artifacts list` does.",
        Exit.BAD_INPUT,
    )


def payload_of(repository: str, digest: str) -> bytes:
    """Return what is signed: that this digest was signed under this name.

    Args:
        repository: with the registry, without a tag.
        digest: of the image's manifest, sha256:HEX.
    """
    critical = {
        "identity": {"docker-reference": repository},
        "image": {"docker-manifest-digest": digest},
        "type": "cosign container image signature",
    }
    return _json({"critical": critical, "optional": None})


def signature_of(key: PrivateKey, payload: bytes) -> bytes:
    """Return a signature over a payload, with SHA-256."""
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(payload, padding.PKCS1v15(), hashes.SHA256())
    return key.sign(payload, ec.ECDSA(hashes.SHA256()))


def sign(key: PrivateKey, repository: str, digest: str, place: cache.Cache) -> bool:
    """Put a signature beside an image of the mirror; signatures by other keys stay.

    Args:
        key: who signs.
        repository: with the registry, without a tag.
        digest: of the image's manifest, sha256:HEX.
        place: the cache with the mirror.

    Returns:
        Whether there was none by this key yet.
    """
    folder = place.below_mirror(f"/v2/{repository}")
    target = folder / image.MANIFEST_FOLDERS[image.MANIFEST] / f"{digest.replace(':', '-')}.sig"
    payload = payload_of(repository, digest)
    with place.locked(f"sign-{repository}") as scratch:
        layers: list[dict[str, t.Any]] = json.loads(target.read_bytes())["layers"] if target.exists() else []
        if any(_is_by(key, payload, layer) for layer in layers):
            return False
        layers.append(
            {
                "mediaType": PAYLOAD,
                "digest": image.digest(payload),
                "size": len(payload),
                "annotations": {SIGNATURE: base64.b64encode(signature_of(key, payload)).decode()},
            }
        )
        rootfs = {"type": "layers", "diff_ids": []}
        empty = _json({"architecture": "", "os": "", "config": {}, "rootfs": rootfs})
        config = {"mediaType": image.CONFIG, "digest": image.digest(empty), "size": len(empty)}
        manifest = {"schemaVersion": 2, "mediaType": image.MANIFEST, "config": config, "layers": layers}
        for blob in (payload, empty):
            image.put(blob, folder / "blobs" / image.digest(blob), scratch)
        image.put(_json(manifest), target, scratch)
    return True


def _is_by(key: PrivateKey, payload: bytes, layer: dict[str, t.Any]) -> bool:
    if layer.get("digest") != image.digest(payload):
        return False
    signature = base64.b64decode(layer["annotations"][SIGNATURE])
    try:
        if isinstance(key, rsa.RSAPrivateKey):
            key.public_key().verify(signature, payload, padding.PKCS1v15(), hashes.SHA256())
        else:
            key.public_key().verify(signature, payload, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def _json(data: t.Any) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()
