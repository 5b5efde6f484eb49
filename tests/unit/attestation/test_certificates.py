# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Whether a maker that the site trusts vouches for the TPM of a host; the key is a real swtpm's."""

from __future__ import annotations

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation import keys
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.certificate import (
    authorities_in,
    insist_on_certificate,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.wire import AttestationError
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tpm_maker import YEAR, Maker
from tests.unit.attestation.answers import raw

EK = keys.endorsement_key(raw("ecdsa", "ek"))
OTHER = keys.attestation_key(raw("rsassa", "ak")).key
ROOT = Maker("Root of a maker")
MAKER = Maker("TPMs of a maker", above=ROOT)
STRANGER = Maker("TPMs of a maker")
CERTIFICATE = MAKER.certify(EK.key)
CLIENT = x509.ObjectIdentifier("1.3.6.1.5.5.7.3.2")


def test_who_has_signed_it_is_trusted_with_and_without_a_root() -> None:
    for texts in ([MAKER.pem], [ROOT.pem, MAKER.pem], [STRANGER.pem + MAKER.pem + ROOT.pem]):
        insist_on_certificate(CERTIFICATE, EK.sha256(), texts)


@pytest.mark.parametrize("filling", [b"\0" * 700, b"\xff" * 700])
def test_what_follows_a_certificate_in_the_tpms_space_is_passed_over(filling: bytes) -> None:
    insist_on_certificate(CERTIFICATE + filling, EK.sha256(), [MAKER.pem])


def test_a_certificate_that_does_not_say_what_its_key_is_for_is_good() -> None:
    insist_on_certificate(MAKER.certify(EK.key, usages=None), EK.sha256(), [MAKER.pem])


@pytest.mark.parametrize(
    ("certificate", "authorities", "why"),
    [
        (b"", [MAKER.pem], "no certificate of its endorsement key is recorded.*take the host out of"),
        (b"\x30\x82\x01\x00nothing", [MAKER.pem], "cannot be read"),
        (CERTIFICATE[:-9], [MAKER.pem], "cannot be read"),
        (MAKER.certify(OTHER), [MAKER.pem], "of another key than its endorsement key"),
        (MAKER.certify(EK.key, usages=(CLIENT,)), [MAKER.pem], "not one of an endorsement key"),
        (MAKER.certify(EK.key, ca=True), [MAKER.pem], "not one of an endorsement key"),
        (CERTIFICATE, [ROOT.pem], "signed by CN=TPMs of a maker, and none of .* add its certificate"),
        (CERTIFICATE, [STRANGER.pem], "signed by CN=TPMs of a maker, and none of"),
        (MAKER.certify(EK.key, age=6 * YEAR), [MAKER.pem], "in the host's TPM is valid from .* to"),
        (MAKER.certify(EK.key, age=-YEAR), [MAKER.pem], "in the host's TPM is valid from .* to"),
    ],
    ids=range(10),
)
def test_what_is_not_vouched_for(certificate: bytes, authorities: list[str], why: str) -> None:
    with pytest.raises(AttestationError, match=why):
        insist_on_certificate(certificate, EK.sha256(), authorities)


def test_an_authority_whose_time_is_over_vouches_for_nobody() -> None:
    old = Maker("Old maker", age=11 * YEAR)
    with pytest.raises(AttestationError, match=r"the authority CN=Old maker of node_.* is valid from"):
        insist_on_certificate(old.certify(EK.key), EK.sha256(), [old.pem])


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (["maker.pem"], "has no certificate in PEM"),
        ([MAKER.pem, ""], "has no certificate in PEM"),
        ([MAKER.pem[:200] + MAKER.pem[300:]], "has no certificate in PEM"),
        ([Maker("A leaf", above=MAKER, ca=False).pem], "has CN=A leaf, which is no authority"),
    ],
    ids=range(4),
)
def test_authorities_that_are_none(texts: list[str], why: str) -> None:
    with pytest.raises(AttestationError, match=why):
        authorities_in(texts)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_no_changed_byte_is_vouched_for(data: st.DataObject) -> None:
    text = bytearray(CERTIFICATE)
    text[data.draw(st.integers(0, len(text) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(AttestationError):
        insist_on_certificate(bytes(text), EK.sha256(), [MAKER.pem])


def test_the_subject_is_never_asked_and_names_are_one_line() -> None:
    maker = Maker("evil\nname\x1b[2J")
    with pytest.raises(AttestationError) as caught:
        insist_on_certificate(maker.certify(EK.key), EK.sha256(), [MAKER.pem])
    assert str(caught.value).isprintable()
