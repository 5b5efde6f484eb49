# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The bytes of records: what is written is read, and nothing else is."""

from __future__ import annotations

import contextlib
import typing as t
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironspan.backup.errors import ChainError
from ironspan.backup.records import (
    PLAIN_MAX,
    Coalesced,
    Event,
    LeaseGone,
    LeaseGrant,
    Progress,
    Record,
    Revision,
    decode,
    encode,
)

unsigned = st.integers(0, 2**64 - 1)
signed = st.integers(-(2**63), 2**63 - 1)
flag = st.booleans()
events = st.builds(Event, st.booleans(), st.binary(), st.binary(), unsigned, unsigned, signed)
records: st.SearchStrategy[Record] = st.one_of(
    st.builds(Revision, unsigned, unsigned, st.lists(events, max_size=4).map(tuple), flag, flag),
    st.builds(Coalesced, unsigned, unsigned, st.binary()),
    st.builds(LeaseGrant, signed, unsigned),
    st.builds(LeaseGone, signed),
    st.builds(Progress, unsigned, unsigned),
)


@given(st.lists(records, max_size=6))
def test_what_is_written_is_read(batch: list[Record]) -> None:
    assert decode(encode(batch)) == batch


@given(st.lists(records, min_size=1, max_size=3), st.data())
def test_an_altered_batch_is_refused(batch: list[Record], data: st.DataObject) -> None:
    plain = bytearray(encode(batch))
    at = data.draw(st.integers(0, len(plain) - 1))
    plain[at] ^= 1 << data.draw(st.integers(0, 7))
    # A header bit of zlib may say nothing about the content; then the content has to be the same.
    with contextlib.suppress(ChainError):
        assert decode(bytes(plain)) == batch


@given(st.lists(records, min_size=1, max_size=3), st.data())
def test_a_batch_that_is_cut_off_is_refused(batch: list[Record], data: st.DataObject) -> None:
    packed = encode(batch)
    with pytest.raises(ChainError):
        decode(packed[: data.draw(st.integers(0, len(packed) - 1))])
    plain = zlib.decompress(packed)
    cut = plain[: data.draw(st.integers(1, len(plain) - 1))]
    with contextlib.suppress(ChainError):
        assert decode(zlib.compress(cut)) == batch[: len(decode(zlib.compress(cut)))]


@given(st.binary(max_size=200))
def test_other_bytes_are_refused_and_nothing_worse(data: bytes) -> None:
    for candidate in (data, zlib.compress(data)):
        with contextlib.suppress(ChainError):
            decode(candidate)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "does not end"),
        (b"nothing", "does not unpack"),
        (zlib.compress(b"\x09"), "unknown kind 9"),
        (zlib.compress(b"\x02"), "in the middle"),
        (encode([LeaseGone(1)]) + b"x", "does not end"),
        (zlib.compress(b"\x05" + bytes(16) + b"\x04" + bytes(4)), "says 2"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, says: str) -> None:
    with pytest.raises(ChainError, match=says):
        decode(data)


def test_a_small_batch_does_not_unpack_to_all_memory() -> None:
    bomb = zlib.compress(bytes(PLAIN_MAX + 1))
    with pytest.raises(ChainError, match="does not end"):
        decode(bomb)


def test_the_bytes_are_those_of_the_documentation() -> None:
    batch: list[t.Any] = [
        LeaseGrant(7, 60),
        Revision(258, 1_800_000_000_000, (Event(True, b"k", b"vv", 256, 3, 7), Event(False, b"d")), True),
        Coalesced(259, 1_800_000_000_001, b"l"),
        LeaseGone(-1),
        Progress(259, 1_800_000_000_002),
    ]
    assert zlib.decompress(encode(batch)).hex(" ", 1) == (
        "03 00 00 00 00 00 00 00 07 00 00 00 00 00 00 00 3c "
        "05 00 00 00 00 00 00 01 02 00 00 01 a3 18 5c 50 00 01 00 00 00 02 "
        "01 00 00 00 01 00 00 00 02 00 00 00 00 00 00 01 00 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00 07 "
        "6b 76 76 "
        "00 00 00 00 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 "
        "64 "
        "01 00 00 00 00 00 00 01 03 00 00 01 a3 18 5c 50 01 00 00 00 01 6c "
        "02 ff ff ff ff ff ff ff ff "
        "04 00 00 00 00 00 00 01 03 00 00 01 a3 18 5c 50 02"
    )
