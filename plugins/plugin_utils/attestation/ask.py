# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Asks a host for what its TPM says: of one that is known, and of one that is not known yet."""

from __future__ import annotations

import hmac
import time
import typing as t
from collections.abc import Callable, Mapping, Sequence
from secrets import token_bytes

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.certificate import (
    insist_on_certificate,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.credential import (
    SIZE,
    made_credential,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.record import (
    Record,
    introduced,
    measured,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.wire import (
    AttestationError,
    from_hex,
)

Ask = Callable[[dict[str, t.Any]], Mapping[str, t.Any]]
"""Called with parameters of the host's program ``attest``; returns its answer, which is to be judged."""


LONGEST_WORD = 500
"""Characters of what a host says went wrong."""


class Policy(t.NamedTuple):
    """What a host's document says of its TPM.

    Args:
        mode: ``record`` or ``require``.
        pcrs: numbers of the PCRs that count.
        tcti: how the host reaches its TPM.
        authorities: those of the site for certificates of TPMs, in PEM; none asks for no certificate.
        endorsement: SHA-256 of the only endorsement key that it may have, in hexadecimal digits; empty for
            any.
    """

    mode: str
    pcrs: Sequence[int]
    tcti: str
    authorities: Sequence[str] = ()
    endorsement: str = ""


def now() -> str:
    """Return the time as records have it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def insist_on_maker(record: Record, policy: Policy) -> None:
    """Insist that a TPM is the one that the site expects of this host, and of a maker that it trusts.

    Raises:
        AttestationError: it is not.
    """
    if policy.endorsement and policy.endorsement != record.endorsement:
        raise AttestationError(
            f"the endorsement key of the host's TPM is {record.endorsement}, and node_attestation_ek_sha256 "
            f"says {policy.endorsement}",
            "compare both with the maker's list: it is another TPM, or the variable is wrong",
        )
    if policy.authorities:
        insist_on_certificate(bytes.fromhex(record.certificate), record.endorsement, policy.authorities)


def measure(record: Record, policy: Policy, ask: Ask) -> dict[int, str]:
    """Return what a host has booted, signed by the TPM of its record for a nonce of this moment.

    Raises:
        AttestationError: that TPM does not answer this question.
    """
    nonce = token_bytes(SIZE)
    answer = _answered(ask, policy, algorithm=record.algorithm, nonce=nonce.hex())
    return measured(record, answer, nonce, policy.pcrs)


def introduce(policy: Policy, ask: Ask, accepted_by: str = "") -> Record:
    """Return the record of a host's TPM, which proves with a credential that it has both of its keys.

    Args:
        policy: the host's.
        ask: asks the host, twice.
        accepted_by: who accepts it, empty for nobody.

    Raises:
        AttestationError: the host has no TPM, or it does not prove that.
    """
    nonce, secret = token_bytes(SIZE), token_bytes(SIZE)
    found = introduced(_answered(ask, policy, nonce=nonce.hex(), endorsement=True), nonce, policy.pcrs)
    if not any(bytes.fromhex(value).strip(b"\0") for value in found.pcrs.values()):
        raise AttestationError(
            "nothing was measured at this boot: all PCRs that count are 0",
            "switch the TPM on in the firmware's settings, and boot by UEFI",
        )
    credential = made_credential(found.endorsement, found.attestation.name, secret)
    answer = _answered(ask, policy, algorithm=found.algorithm, credential=credential.hex())
    if not hmac.compare_digest(from_hex(answer.get("secret"), "secret"), secret):
        raise AttestationError("the host's TPM does not have both of the keys that it was told to have")
    return Record(
        endorsement=found.endorsement.sha256(),
        algorithm=found.algorithm,
        key=found.key,
        pcrs=found.pcrs,
        accepted_by=accepted_by,
        time=now(),
        certificate=found.certificate,
    )


def _answered(ask: Ask, policy: Policy, **more: t.Any) -> Mapping[str, t.Any]:
    answer = ask({"tcti": policy.tcti, "pcrs": list(policy.pcrs), **more})
    found = answer.get("attestation")
    if not isinstance(found, Mapping):
        said = str(answer.get("msg") or "no reason")[:LONGEST_WORD]
        line = " ".join("".join(letter if letter.isprintable() else " " for letter in said).split())
        raise AttestationError(f"the host's TPM did not answer: {line}")
    return found
