# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A quote counts when the host's own TPM signed it, for this question, over what was asked for."""

from __future__ import annotations

import typing as t
from collections.abc import Callable

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.keys import attestation_key
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.quote import (
    insist_on_quote,
    read_quote,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.record import (
    Record,
    differences,
    introduced,
    measured,
    quoted,
    record_from,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.wire import AttestationError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.attestation.answers import ANSWERS, PCRS, Forger, raw, values

MESSAGE, SIGNATURE, NONCE = raw("ecdsa", "quote"), raw("ecdsa", "signature"), raw("ecdsa", "nonce")
KEY = attestation_key(raw("ecdsa", "ak"))
BANKS, SELECTED = len(MESSAGE) - 44, len(MESSAGE) - 38
"""Where the number of banks stands, and the size of the selection with its bits."""


@pytest.mark.parametrize("algorithm", ANSWERS)
def test_what_a_tpm_signed_is_believed(algorithm: str) -> None:
    key = attestation_key(raw(algorithm, "ak"))
    given = [raw(algorithm, name) for name in ("quote", "signature", "nonce")]
    insist_on_quote(key, given[0], given[1], given[2], PCRS, values(algorithm))
    assert read_quote(given[0]).pcrs == PCRS


def put(place: int, new: bytes) -> Callable[[bytes], bytes]:
    return lambda message: message[:place] + new + message[place + len(new) :]


FORGED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "not made by the TPM itself": (put(0, b"\xff\x54\x43\x46"), "its beginning is 0xff544346"),
    "a certified key": (put(4, b"\x80\x17"), "its kind is 0x8017"),
    "another nonce": (lambda message: message.replace(NONCE, bytes(32)), "another question"),
    "no nonce": (lambda message: message.replace(b"\0\x20" + NONCE, b"\0\0"), "another question"),
    "two banks": (put(BANKS, b"\0\0\0\2"), "the number of banks is 0x2"),
    "the bank of SHA-1": (put(BANKS + 4, b"\0\4"), "the bank is 0x4"),
    "PCR 23 for PCR 0": (put(SELECTED, b"\3\x94\0\x80"), "over other PCRs"),
    "PCRs that there are not": (
        lambda message: message[:SELECTED] + b"\4\0\0\0\1" + message[-34:],
        "more than 24",
    ),
    "fewer PCRs": (put(SELECTED + 1, b"\x85"), "over other PCRs"),
    "another digest": (lambda message: message[:-32] + bytes(32), "other PCRs than its TPM has signed"),
    "cut off": (lambda message: message[:-1], "it ends too early"),
    "more behind it": (lambda message: message + b"\0", "1 bytes follow its end"),
}


@pytest.mark.parametrize(("change", "why"), FORGED.values(), ids=FORGED)
def test_what_else_a_key_signed_is_refused(change: Callable[[bytes], bytes], why: str) -> None:
    forger, message = Forger(), change(MESSAGE)
    insist_on_quote(forger.key, MESSAGE, forger.signature(MESSAGE), NONCE, PCRS, values())
    with pytest.raises(AttestationError, match=why):
        insist_on_quote(forger.key, message, forger.signature(message), NONCE, PCRS, values())


def test_the_tpm_of_another_host_is_refused() -> None:
    with pytest.raises(AttestationError, match="not signed by the TPM that was recorded"):
        insist_on_quote(KEY, MESSAGE, Forger().signature(MESSAGE), NONCE, PCRS, values())
    with pytest.raises(AttestationError, match="its scheme is 0x14"):
        insist_on_quote(KEY, MESSAGE, raw("rsassa", "signature"), NONCE, PCRS, values())


LIES: list[dict[int, bytes]] = [
    {**values(), 0: bytes(32)},
    {**values(), 0: values()[2], 2: values()[0]},
    {number: value for number, value in values().items() if number},
    {**values(), 1: bytes(32)},
    # The same bytes in a row, cut at another place.
    {**values(), 0: values()[0] + values()[2][:1], 2: values()[2][1:]},
]


@pytest.mark.parametrize("said", LIES)
def test_a_host_cannot_say_other_values_than_its_tpm(said: dict[int, bytes]) -> None:
    with pytest.raises(AttestationError, match="PCR"):
        insist_on_quote(KEY, MESSAGE, SIGNATURE, NONCE, PCRS, said)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_no_changed_byte_is_believed(data: st.DataObject) -> None:
    signature = data.draw(st.booleans())
    text = bytearray(SIGNATURE if signature else MESSAGE)
    place = data.draw(st.integers(0, len(text) - 1))
    text[place] ^= data.draw(st.integers(1, 255))
    changed = (MESSAGE, bytes(text)) if signature else (bytes(text), SIGNATURE)
    with pytest.raises(AttestationError):
        insist_on_quote(KEY, *changed, NONCE, PCRS, values())


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.binary(max_size=90).map(bytes.hex),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(field=st.sampled_from(["ak", "ek", "quote", "signature", "pcrs"]), value=PLAIN, cut=st.booleans())
@settings(max_examples=100, deadline=None)
def test_whatever_a_host_answers_it_is_refused_in_words(field: str, value: t.Any, cut: bool) -> None:
    answer = dict(ANSWERS["ecdsa"])
    if cut and isinstance(answer[field], str):
        value = answer[field][: 2 * (len(str(value)) % 40)]
    answer[field] = value
    with pytest.raises(AttestationError):
        introduced(answer, NONCE, PCRS)


def test_a_record_comes_back_as_it_was_and_names_what_differs() -> None:
    found = introduced(ANSWERS["ecdsa"], NONCE, PCRS)
    record = Record(
        found.endorsement.sha256(), found.algorithm, found.key, found.pcrs, "anna", "2026-11-26T00:00:00Z"
    )
    again = record_from(record.text())
    assert again == record
    assert measured(again, ANSWERS["ecdsa"], NONCE, PCRS) == found.pcrs
    assert differences(again, found.pcrs) == []
    now = {**found.pcrs, 0: "ab" * 32, 9: "cd" * 32}
    assert differences(again, now) == [
        f"PCR 0 (firmware) is abababababababab and was {found.pcrs[0][:16]}",
        "PCR 9 (files that GRUB has read, kernel among them) was not recorded",
    ]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"pcrs": {"x": ""}}', '{"pcrs": {}, "who": "me"}', "\0"])
def test_a_damaged_record_is_refused(text: str) -> None:
    with pytest.raises(AttestationError, match="damaged"):
        record_from(text)


def test_a_quote_of_another_key_than_the_record_s_is_refused() -> None:
    with pytest.raises(AttestationError):
        quoted(Forger().key, ANSWERS["ecdsa"], NONCE, PCRS)
