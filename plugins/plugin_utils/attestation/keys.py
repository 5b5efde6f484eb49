# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Public keys of TPMs (TPM2B_PUBLIC): whether a key is what it has to be, and its name.

The name of a key is a digest over all of its public part, its attributes too. Who has proved to have the key
of a name has proved that it cannot leave its TPM, if the attributes say so.
"""

from __future__ import annotations

import dataclasses
import hashlib
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation import wire
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.wire import AttestationError, Reader
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

FIXED_TPM, FIXED_PARENT, MADE_BY_TPM = 1 << 1, 1 << 4, 1 << 5
RESTRICTED, DECRYPT, SIGN = 1 << 16, 1 << 17, 1 << 18
_BORN_THERE = FIXED_TPM | FIXED_PARENT | MADE_BY_TPM | RESTRICTED
ATTRIBUTES: t.Mapping[int, str] = {
    FIXED_TPM: "fixedTPM",
    FIXED_PARENT: "fixedParent",
    MADE_BY_TPM: "sensitiveDataOrigin",
    RESTRICTED: "restricted",
    DECRYPT: "decrypt",
    SIGN: "sign",
}
RSA_BITS = (2048, 3072, 4096)
EXPONENT = 65537
Key = ec.EllipticCurvePublicKey | rsa.RSAPublicKey


@dataclasses.dataclass(frozen=True, slots=True)
class TpmKey:
    """A public key of a TPM.

    Args:
        key: the key itself.
        attributes: what it is for, and whether it may leave; bits.
        scheme: of signatures, ``wire.NULL`` for none.
        symmetric_bits: of the AES key that it protects others with, 0 for none.
        name: the digest over all of that, with the number of its algorithm before it.
    """

    key: Key
    attributes: int
    scheme: int
    symmetric_bits: int
    name: bytes

    def sha256(self) -> str:
        """Return the SHA-256 of the key as SubjectPublicKeyInfo in DER, which vendors' lists have."""
        form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        return hashlib.sha256(self.key.public_bytes(*form)).hexdigest()


def attestation_key(public: bytes) -> TpmKey:
    """Return a key that signs what its TPM says, and nothing that it is given.

    Args:
        public: the TPM2B_PUBLIC.

    Raises:
        AttestationError: it is none, or it may leave its TPM, or sign what somebody else has made up.
    """
    key = _read(public, "attestation key")
    _insist(key, _BORN_THERE | SIGN, DECRYPT, "attestation key")
    wanted = wire.ECDSA if isinstance(key.key, ec.EllipticCurvePublicKey) else wire.RSASSA
    if key.scheme != wanted:
        raise AttestationError(f"the TPM's attestation key signs by scheme 0x{key.scheme:x}")
    return key


def endorsement_key(public: bytes) -> TpmKey:
    """Return the RSA key that a TPM is known by, which opens credentials.

    Args:
        public: the TPM2B_PUBLIC.

    Raises:
        AttestationError: it is none, or it may leave its TPM.
    """
    key = _read(public, "endorsement key")
    _insist(key, _BORN_THERE | DECRYPT, SIGN, "endorsement key")
    if not isinstance(key.key, rsa.RSAPublicKey) or not key.symmetric_bits:
        raise AttestationError("the TPM's endorsement key is none of RSA and AES")
    return key


def _insist(key: TpmKey, needed: int, forbidden: int, what: str) -> None:
    lacks = [name for bit, name in ATTRIBUTES.items() if bit & needed & ~key.attributes]
    has = [name for bit, name in ATTRIBUTES.items() if bit & forbidden & key.attributes]
    if lacks or has:
        words = [*(f"it lacks {name}" for name in lacks), *(f"it has {name}" for name in has)]
        raise AttestationError(f"the TPM's {what} cannot be trusted: {', '.join(words)}")


def _read(public: bytes, what: str) -> TpmKey:
    whole = Reader(public, what)
    area = whole.sized()
    whole.end()
    reader = Reader(area, what)
    kind = reader.number(2)
    if kind not in (wire.RSA, wire.ECC):
        raise reader.wrong(f"it is of kind 0x{kind:x}")
    reader.expect(wire.SHA256, 2, "its digest")
    attributes = reader.number(4)
    reader.sized()  # what else it takes to use it
    bits = _symmetric_bits(reader)
    scheme = reader.number(2)
    if scheme != wire.NULL:
        reader.expect(wire.SHA256, 2, "the digest of its signatures")
    key = _rsa(reader) if kind == wire.RSA else _ecc(reader)
    reader.end()
    name = wire.SHA256.to_bytes(2, "big") + hashlib.sha256(area).digest()
    return TpmKey(key, attributes, scheme, bits, name)


def _symmetric_bits(reader: Reader) -> int:
    algorithm = reader.number(2)
    if algorithm == wire.NULL:
        return 0
    if algorithm != _AES:
        raise reader.wrong(f"it protects others with algorithm 0x{algorithm:x}")
    bits = reader.number(2)
    reader.expect(_CFB, 2, "its mode")
    if bits not in (128, 256):
        raise reader.wrong(f"its AES keys have {bits} bits")
    return bits


_AES, _CFB = 0x0006, 0x0043


def _rsa(reader: Reader) -> rsa.RSAPublicKey:
    bits, exponent = reader.number(2), reader.number(4) or EXPONENT
    modulus = int.from_bytes(reader.sized(), "big")
    if bits not in RSA_BITS or modulus.bit_length() != bits or not modulus % 2 or exponent != EXPONENT:
        raise reader.wrong(f"it is no RSA key of {', '.join(map(str, RSA_BITS))} bits")
    try:
        return rsa.RSAPublicNumbers(exponent, modulus).public_key()
    except ValueError:
        raise reader.wrong("it is no RSA key") from None


def _ecc(reader: Reader) -> ec.EllipticCurvePublicKey:
    reader.expect(wire.P256, 2, "its curve")
    reader.expect(wire.NULL, 2, "its derivation of keys")
    x, y = (int.from_bytes(reader.sized(), "big") for _ in range(2))
    try:
        return ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
    except ValueError:
        raise reader.wrong("it is no point of its curve") from None
