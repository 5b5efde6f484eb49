# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What swtpm 0.7.1 answered to the host's program through tpm2-tools 5.4, and quotes that no TPM made."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.keys import TpmKey, attestation_key
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.wire import with_size
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils

ANSWERS: dict[str, dict[str, t.Any]] = json.loads(Path(__file__).with_name("swtpm.json").read_text())
"""By kind of attestation key: nonce, ak, ek, quote, signature, pcrs."""
PCRS = (0, 2, 4, 7)


def raw(algorithm: str, name: str) -> bytes:
    """Return the bytes of one field."""
    return bytes.fromhex(ANSWERS[algorithm][name])


def values(algorithm: str = "ecdsa") -> dict[int, bytes]:
    """Return the values of the PCRs."""
    return {int(number): bytes.fromhex(value) for number, value in ANSWERS[algorithm]["pcrs"].items()}


class Forger:
    """Signs quotes as a TPM would, whatever they are."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        point = self._key.public_key().public_numbers()
        coordinates = b"".join(with_size(number.to_bytes(32, "big")) for number in (point.x, point.y))
        area = raw("ecdsa", "ak")[2:-68] + coordinates
        self.key: TpmKey = attestation_key(with_size(area))

    def signature(self, message: bytes) -> bytes:
        """Return a TPMT_SIGNATURE."""
        pair = utils.decode_dss_signature(self._key.sign(message, ec.ECDSA(hashes.SHA256())))
        return bytes.fromhex("0018000b") + b"".join(with_size(number.to_bytes(32, "big")) for number in pair)
