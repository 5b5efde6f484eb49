# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Credentials (TPM2_MakeCredential): a secret that only the TPM opens that has both of two keys.

This is how an attestation key is bound to an endorsement key: part 1, chapter "Credential Protection".
"""

from __future__ import annotations

import hmac
import secrets

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.keys import TpmKey
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.wire import (
    AttestationError,
    with_size,
)
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.kbkdf import KBKDFHMAC, CounterLocation, Mode

try:
    from cryptography.hazmat.decrepit.ciphers.modes import CFB
except ImportError:
    from cryptography.hazmat.primitives.ciphers.modes import CFB

SIZE = 32
"""Bytes of the secret, and of the seed: as many as the names' digest has."""
_TOOLS_MAGIC = bytes.fromhex("badcc0de00000001")
"""What the file begins with that ``tpm2 activatecredential`` reads, and the version of that."""


def made_credential(endorsement: TpmKey, name: bytes, secret: bytes) -> bytes:
    """Return a secret that only this TPM opens, and only if it has the key of this name too.

    Args:
        endorsement: the TPM's endorsement key.
        name: of the attestation key.
        secret: of ``SIZE`` bytes.

    Returns:
        The file that ``tpm2 activatecredential`` reads.

    Raises:
        AttestationError: the endorsement key cannot encrypt.
    """
    assert isinstance(endorsement.key, rsa.RSAPublicKey)  # endorsement_key() reads no other
    seed = secrets.token_bytes(SIZE)
    sha256 = hashes.SHA256()
    oaep = padding.OAEP(padding.MGF1(sha256), sha256, b"IDENTITY\0")
    try:
        encrypted_seed = endorsement.key.encrypt(seed, oaep)
    except ValueError as error:
        raise AttestationError(f"the TPM's endorsement key cannot encrypt: {error}") from None
    aes = derived(seed, b"STORAGE", name, endorsement.symmetric_bits // 8)
    cipher = Cipher(algorithms.AES(aes), CFB(bytes(16))).encryptor()
    identity = cipher.update(with_size(secret)) + cipher.finalize()
    integrity = hmac.digest(derived(seed, b"INTEGRITY", b"", SIZE), identity + name, "sha256")
    return _TOOLS_MAGIC + with_size(with_size(integrity) + identity) + with_size(encrypted_seed)


def derived(seed: bytes, label: bytes, context: bytes, size: int) -> bytes:
    """Return KDFa of part 1, with SHA-256: SP 800-108 in counter mode."""
    return KBKDFHMAC(
        algorithm=hashes.SHA256(),
        mode=Mode.CounterMode,
        length=size,
        rlen=4,
        llen=4,
        location=CounterLocation.BeforeFixed,
        label=label,
        context=context,
        fixed=None,
    ).derive(seed)
