# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Quotes: what a TPM says was measured while its host booted, signed, for one question."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation import wire
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.keys import TpmKey
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.wire import AttestationError, Reader
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils

MAGIC, QUOTE = 0xFF544347, 0x8018
"""TPM_GENERATED_VALUE, with which only what a TPM has made itself may begin, and TPM_ST_ATTEST_QUOTE."""
MOST_PCRS = 24
WHAT = "quote"


@dataclasses.dataclass(frozen=True, slots=True)
class Quote:
    """What was signed.

    Args:
        nonce: the question's.
        pcrs: numbers of what it is over, in the bank of SHA-256.
        digest: over their values.
    """

    nonce: bytes
    pcrs: tuple[int, ...]
    digest: bytes


def read_quote(message: bytes) -> Quote:
    """Read a TPMS_ATTEST.

    Raises:
        AttestationError: it is no quote over the bank of SHA-256 alone.
    """
    reader = Reader(message, WHAT)
    reader.expect(MAGIC, 4, "its beginning")
    reader.expect(QUOTE, 2, "its kind")
    reader.sized()  # the name of who signed, which the signature tells better
    nonce = reader.sized()
    reader.take(8 + 4 + 4 + 1 + 8)  # clock, resets, restarts, whether the clock is safe, firmware
    reader.expect(1, 4, "the number of banks")
    reader.expect(wire.SHA256, 2, "the bank")
    size = reader.number(1)
    bits = int.from_bytes(reader.take(size), "little")
    if bits >> MOST_PCRS:
        raise reader.wrong(f"it is over more than {MOST_PCRS} PCRs")
    digest = reader.sized()
    reader.end()
    return Quote(nonce, tuple(number for number in range(MOST_PCRS) if bits >> number & 1), digest)


def insist_on_quote(
    key: TpmKey,
    message: bytes,
    signature: bytes,
    nonce: bytes,
    pcrs: Sequence[int],
    values: Mapping[int, bytes],
) -> None:
    """Insist that a TPM answers this question, and that these are the values.

    Args:
        key: the attestation key of the host's record.
        message: TPMS_ATTEST.
        signature: TPMT_SIGNATURE of it.
        nonce: the question's, used for no other one.
        pcrs: the numbers that were asked for.
        values: what the host says that their values are.

    Raises:
        AttestationError: anything of that is not so.
    """
    _insist_on_signature(key, message, signature)
    quote = read_quote(message)
    if not hmac.compare_digest(quote.nonce, nonce):
        raise AttestationError("the TPM's quote answers another question: its nonce is not that of this run")
    wanted = tuple(sorted(set(pcrs)))
    if quote.pcrs != wanted or tuple(sorted(values)) != wanted:
        raise AttestationError("the TPM's quote is over other PCRs than those that were asked for")
    if any(len(value) != hashlib.sha256().digest_size for value in values.values()):
        raise AttestationError("the host answered PCRs that are no SHA-256")
    whole = hashlib.sha256(b"".join(values[number] for number in wanted)).digest()
    if not hmac.compare_digest(quote.digest, whole):
        raise AttestationError("the host answered other PCRs than its TPM has signed")


def _insist_on_signature(key: TpmKey, message: bytes, signature: bytes) -> None:
    reader = Reader(signature, "signature")
    reader.expect(key.scheme, 2, "its scheme")
    reader.expect(wire.SHA256, 2, "its digest")
    check = (
        _ecdsa(key.key, reader)
        if isinstance(key.key, ec.EllipticCurvePublicKey)
        else _rsassa(key.key, reader)
    )
    reader.end()
    try:
        check(message)
    except (InvalidSignature, ValueError):
        raise AttestationError("the quote is not signed by the TPM that was recorded for this host") from None


def _ecdsa(key: ec.EllipticCurvePublicKey, reader: Reader) -> t.Callable[[bytes], None]:
    r, s = (int.from_bytes(reader.sized(), "big") for _ in range(2))
    encoded = utils.encode_dss_signature(r, s)
    return lambda message: key.verify(encoded, message, ec.ECDSA(hashes.SHA256()))


def _rsassa(key: rsa.RSAPublicKey, reader: Reader) -> t.Callable[[bytes], None]:
    signed = reader.sized()
    return lambda message: key.verify(signed, message, padding.PKCS1v15(), hashes.SHA256())
