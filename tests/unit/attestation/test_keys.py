# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Keys of TPMs are taken for what their attributes let them be, and for nothing else."""

from __future__ import annotations

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation import keys, wire
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.credential import (
    derived,
    made_credential,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.wire import AttestationError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.attestation.answers import raw

ATTRIBUTES = 6
"""Where they stand in a TPM2B_PUBLIC."""


def with_attributes(public: bytes, attributes: int) -> bytes:
    return public[:ATTRIBUTES] + attributes.to_bytes(4, "big") + public[ATTRIBUTES + 4 :]


def test_both_keys_of_a_real_tpm_are_what_they_have_to_be() -> None:
    for algorithm, scheme in (("ecdsa", wire.ECDSA), ("rsassa", wire.RSASSA)):
        assert keys.attestation_key(raw(algorithm, "ak")).scheme == scheme
    endorsement = keys.endorsement_key(raw("ecdsa", "ek"))
    assert (endorsement.symmetric_bits, len(endorsement.name), len(endorsement.sha256())) == (128, 34, 64)


@pytest.mark.parametrize(("bit", "name"), keys.ATTRIBUTES.items())
def test_a_key_with_another_attribute_is_refused(bit: int, name: str) -> None:
    """That may leave its TPM, was made elsewhere, or signs what it is given."""
    for read, public in (
        (keys.attestation_key, raw("ecdsa", "ak")),
        (keys.attestation_key, raw("rsassa", "ak")),
        (keys.endorsement_key, raw("ecdsa", "ek")),
    ):
        attributes = int.from_bytes(public[ATTRIBUTES : ATTRIBUTES + 4], "big")
        word = "lacks" if attributes & bit else "has"
        with pytest.raises(AttestationError, match=f"cannot be trusted: it {word} {name}"):
            read(with_attributes(public, attributes ^ bit))


def test_the_name_covers_the_attributes() -> None:
    public = raw("ecdsa", "ak")
    attributes = int.from_bytes(public[ATTRIBUTES : ATTRIBUTES + 4], "big")
    other = keys.attestation_key(with_attributes(public, attributes ^ 1 << 10))
    assert other.name != keys.attestation_key(public).name


def test_one_key_is_not_taken_for_the_other() -> None:
    with pytest.raises(AttestationError, match="attestation key cannot be trusted"):
        keys.attestation_key(raw("ecdsa", "ek"))
    for algorithm in ("ecdsa", "rsassa"):
        with pytest.raises(AttestationError, match="endorsement key cannot be trusted"):
            keys.endorsement_key(raw(algorithm, "ak"))


def test_weak_and_impossible_keys_are_refused() -> None:
    rsa, ecc = raw("ecdsa", "ek"), raw("ecdsa", "ak")
    for public, why in (
        (rsa[:-1] + b"\0", "no RSA key"),
        (rsa[:-256] + bytes(256), "no RSA key"),
        (rsa.replace(b"\x08\x00\x00\x00\x00\x00\x01\x00", b"\x08\x00\x00\x00\x00\x03\x01\x00"), "no RSA key"),
        (rsa.replace(b"\x08\x00\x00\x00\x00\x00\x01\x00", b"\x04\x00\x00\x00\x00\x00\x01\x00"), "no RSA key"),
        (ecc[:-1] + bytes([ecc[-1] ^ 1]), "no point of its curve"),
        (ecc[:-32] + bytes(32), "no point of its curve"),
        (ecc.replace(b"\0\3\0\x10\0\x20", b"\0\4\0\x10\0\x20"), "its curve is 0x4"),
        (b"", "it ends too early"),
        (rsa + b"\0", "1 bytes follow its end"),
    ):
        with pytest.raises(AttestationError, match=why):
            (keys.attestation_key if public[2:4] == b"\0\x23" else keys.endorsement_key)(public)


@given(algorithm=st.sampled_from(["ecdsa", "rsassa"]), name=st.sampled_from(["ak", "ek"]), data=st.data())
@settings(max_examples=80, deadline=None)
def test_changed_bytes_are_another_key_or_refused(algorithm: str, name: str, data: st.DataObject) -> None:
    text = bytearray(raw(algorithm, name))
    read = keys.attestation_key if name == "ak" else keys.endorsement_key
    place = data.draw(st.integers(0, len(text) - 1))
    text[place] ^= data.draw(st.integers(1, 255))
    try:
        found = read(bytes(text))
    except AttestationError:
        return
    assert found.name != read(raw(algorithm, name)).name


def test_keys_are_derived_as_sp_800_108_says() -> None:
    """By hand: HMAC over counter, label, context and the number of bits."""
    import hashlib
    import hmac

    seed, name = bytes(range(32)), b"\0\x0b" + bytes(32)
    block = hmac.digest(seed, b"\0\0\0\1STORAGE\0" + name + b"\0\0\0\x80", hashlib.sha256)
    assert derived(seed, b"STORAGE", name, 16) == block[:16]
    block = hmac.digest(seed, b"\0\0\0\1INTEGRITY\0" + b"\0\0\1\0", hashlib.sha256)
    assert derived(seed, b"INTEGRITY", b"", 32) == block


def test_a_credential_has_the_form_that_the_tool_reads_and_is_another_one_each_time() -> None:
    endorsement = keys.endorsement_key(raw("ecdsa", "ek"))
    name = keys.attestation_key(raw("ecdsa", "ak")).name
    one, other = (made_credential(endorsement, name, bytes(32)) for _ in range(2))
    assert one != other
    assert one[:8] == bytes.fromhex("badcc0de00000001")
    assert len(one) == 8 + 2 + (2 + 32 + 34) + 2 + 256
