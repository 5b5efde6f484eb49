# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is known of a host's TPM: its two keys, the measurements of one boot, and who accepted them."""

from __future__ import annotations

import dataclasses
import json
import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation import keys, quote, wire
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.wire import (
    AttestationError,
    from_hex,
)

PCRS: Mapping[int, str] = {
    0: "firmware",
    1: "settings of the firmware",
    2: "option ROMs",
    3: "settings of option ROMs",
    4: "boot loader",
    5: "partition table and settings of the boot loader",
    6: "of the vendor",
    7: "Secure Boot: state and keys",
    8: "commands of GRUB",
    9: "files that GRUB has read, kernel among them",
    11: "unified kernel image",
    12: "command line of a unified kernel image",
    14: "keys of shim",
}
"""What is measured where: TCG PC Client Platform Firmware Profile, and what Linux boot loaders add."""


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """What is known of a host's TPM.

    Args:
        endorsement: SHA-256 of its endorsement key, in hexadecimal digits.
        algorithm: kind of its attestation key.
        key: the attestation key as the TPM wrote it, in hexadecimal digits. Its TPM has both keys.
        pcrs: values of PCRs by number, in hexadecimal digits.
        accepted_by: who accepted it, empty when nobody has.
        time: when it was measured, in UTC.
        certificate: that of the endorsement key, as the TPM has it, in hexadecimal digits; empty for none.
        asked: when it was asked again, in UTC; empty when it never was.
        found: what differed then, or why it did not answer; empty when all was as recorded.
    """

    endorsement: str
    algorithm: str
    key: str
    pcrs: Mapping[int, str]
    accepted_by: str
    time: str
    certificate: str = ""
    asked: str = ""
    found: str = ""

    def text(self) -> str:
        """Return it as JSON."""
        return json.dumps({**dataclasses.asdict(self), "pcrs": {str(n): v for n, v in self.pcrs.items()}})


def record_from(text: str) -> Record:
    """Return a record from JSON.

    Raises:
        AttestationError: it is damaged.
    """
    try:
        found = json.loads(text)
        pcrs = {int(number): str(value) for number, value in found.pop("pcrs").items()}
        return Record(**{name: str(value) for name, value in found.items()}, pcrs=pcrs)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise AttestationError("the record is damaged", "accept the host's TPM again") from None


def measured(
    record: Record, answer: Mapping[str, t.Any], nonce: bytes, pcrs: Sequence[int]
) -> dict[int, str]:
    """Return the PCRs of a host, whose TPM has signed them for this question.

    Args:
        record: of the host; its attestation key is the one that counts.
        answer: what the host answered.
        nonce: the question's.
        pcrs: the numbers that were asked for.

    Returns:
        The values by number, in hexadecimal digits.

    Raises:
        AttestationError: the answer is not that TPM's, or not to this question.
    """
    return quoted(keys.attestation_key(from_hex(record.key, "attestation key")), answer, nonce, pcrs)


def quoted(
    key: keys.TpmKey, answer: Mapping[str, t.Any], nonce: bytes, pcrs: Sequence[int]
) -> dict[int, str]:
    """Return the PCRs that an attestation key has signed; see ``measured``."""
    said = answer.get("pcrs")
    if not isinstance(said, Mapping) or len(said) > quote.MOST_PCRS:
        raise AttestationError("the host answered no PCRs")
    known = {str(number): number for number in range(quote.MOST_PCRS)}
    if not said.keys() <= known.keys():
        raise AttestationError("the host answered PCRs that there are not")
    values = {known[number]: from_hex(value, "value of a PCR") for number, value in said.items()}
    message, signature = (from_hex(answer.get(name), name) for name in ("quote", "signature"))
    quote.insist_on_quote(key, message, signature, nonce, pcrs, values)
    return {number: value.hex() for number, value in sorted(values.items())}


def differences(record: Record, pcrs: Mapping[int, str]) -> list[str]:
    """Return what was measured otherwise than the record has it, a clause each."""
    found = []
    for number, value in sorted(pcrs.items()):
        what = f"PCR {number} ({PCRS[number]})" if number in PCRS else f"PCR {number}"
        recorded = record.pcrs.get(number)
        if recorded is None:
            found.append(f"{what} was not recorded")
        elif recorded != value:
            found.append(f"{what} is {value[:16]} and was {recorded[:16]}")
    return found


class Introduction(t.NamedTuple):
    """A TPM that is not known yet: what its host answered, judged but for the credential.

    Args:
        endorsement: its endorsement key.
        attestation: its attestation key.
        algorithm: kind of that.
        key: that key as the host answered it.
        pcrs: what it has signed.
        certificate: of the endorsement key, in hexadecimal digits; empty for none.
    """

    endorsement: keys.TpmKey
    attestation: keys.TpmKey
    algorithm: str
    key: str
    pcrs: dict[int, str]
    certificate: str


def introduced(answer: Mapping[str, t.Any], nonce: bytes, pcrs: Sequence[int]) -> Introduction:
    """Judge what a host answers of a TPM that is not known yet.

    Raises:
        AttestationError: a key is not what it must be, or the quote is not that key's.
    """
    endorsement = keys.endorsement_key(from_hex(answer.get("ek"), "endorsement key"))
    key = str(answer.get("ak"))
    attestation = keys.attestation_key(from_hex(key, "attestation key"))
    algorithm = {wire.ECDSA: "ecdsa", wire.RSASSA: "rsassa"}[attestation.scheme]
    certificate = from_hex(answer.get("certificate") or "", "certificate").hex()
    signed = quoted(attestation, answer, nonce, pcrs)
    return Introduction(endorsement, attestation, algorithm, key, signed, certificate)
