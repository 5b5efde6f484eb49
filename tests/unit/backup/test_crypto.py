# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Encryption: what was written is read, anything else is refused, keys are found by their version."""

from __future__ import annotations

import base64
import os
import pathlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ironspan.backup import crypto
from ironspan.backup.errors import ChainError
from ironspan.program.errors import KeyMissing, ProgramError
from tests.support.backup_log import file_keys

KEY = bytes(range(32))
NAME = "lab/e000001/snapshots/1/data"


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crypto, "PART_BYTES", 64)


def encrypted(plain: bytes, name: str = NAME) -> bytes:
    return b"".join(crypto.encrypt([plain], KEY, name))


def decrypted(data: bytes, name: str = NAME) -> bytes:
    return b"".join(crypto.decrypt([data], KEY, name))


same_patch = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@same_patch
@given(st.lists(st.binary(max_size=150), max_size=5), st.integers(1, 200))
def test_what_is_written_is_read_in_pieces_of_any_size(chunks: list[bytes], step: int) -> None:
    data = b"".join(crypto.encrypt(chunks, KEY, NAME))
    plain = b"".join(chunks)
    assert len(data) == len(plain) + crypto.TAG_BYTES * crypto.parts(len(plain))
    pieces = [data[at : at + step] for at in range(0, len(data), step)]
    assert b"".join(crypto.decrypt(pieces, KEY, NAME)) == plain


@same_patch
@given(st.sampled_from([0, 1, 63, 64, 65, 128, 200]), st.data())
def test_any_flipped_bit_is_found(size: int, data: st.DataObject) -> None:
    altered = bytearray(encrypted(os.urandom(size)))
    at = data.draw(st.integers(0, len(altered) - 1))
    altered[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(ChainError, match=f"byte {at // 80 * 80} ") as caught:
        decrypted(bytes(altered))
    assert caught.value.altered == NAME


@pytest.mark.parametrize("size", [0, 1, 64, 128, 200])
def test_an_end_that_is_missing_is_found_wherever_it_was_cut(size: int) -> None:
    data = encrypted(bytes(size))
    for length in range(len(data)):
        with pytest.raises(ChainError):
            decrypted(data[:length])


def test_parts_in_another_order_are_refused() -> None:
    data = encrypted(bytes(200))
    first, second, rest = data[:80], data[80:160], data[160:]
    assert decrypted(first + second + rest) == bytes(200)
    for other in (second + first + rest, first + first + rest, second + rest, first + second + rest + rest):
        with pytest.raises(ChainError):
            decrypted(other)


def test_one_object_does_not_stand_for_another() -> None:
    with pytest.raises(ChainError):
        decrypted(encrypted(b"old"), "lab/e000001/snapshots/2/data")


def test_nothing_unverified_is_handed_out() -> None:
    data = bytearray(encrypted(b"a" * 64 + b"b" * 64 + b"c"))
    data[85] ^= 1
    seen = []
    with pytest.raises(ChainError):
        for part in crypto.decrypt([bytes(data)], KEY, NAME):
            seen.append(part)
    assert seen == [b"a" * 64]


def test_the_newest_key_wraps_and_every_key_unwraps(tmp_path: pathlib.Path) -> None:
    keys = file_keys(tmp_path, [2, 10])
    version, wrapped = keys.wrap(KEY)
    assert version == keys.current == "10"
    assert keys.unwrap(version, wrapped) == KEY
    file_keys(tmp_path, [11])
    assert keys.wrap(KEY)[0] == "11"
    assert keys.unwrap("10", wrapped) == KEY


def test_a_key_that_is_missing_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(KeyMissing, match="no key in"):
        file_keys(tmp_path, []).wrap(KEY)
    keys = file_keys(tmp_path, [1, 2])
    version, wrapped = keys.wrap(KEY)
    (tmp_path / "2.key").unlink()
    with pytest.raises(KeyMissing, match="version '2'"):
        keys.unwrap(version, wrapped)
    for odd in ("../2", "", "2.key"):
        with pytest.raises(KeyMissing):
            keys.unwrap(odd, wrapped)


def test_another_key_of_the_same_version_is_told(tmp_path: pathlib.Path) -> None:
    keys = file_keys(tmp_path)
    version, wrapped = keys.wrap(KEY)
    (tmp_path / "1.key").write_text(base64.b64encode(os.urandom(32)).decode())
    with pytest.raises(KeyMissing, match="not the one"):
        keys.unwrap(version, wrapped)


@pytest.mark.parametrize("content", ["", "no base64!", base64.b64encode(bytes(31)).decode(), "ä"])
def test_a_malformed_key_is_named_and_not_shown(tmp_path: pathlib.Path, content: str) -> None:
    (tmp_path / "1.key").write_text(content)
    with pytest.raises(ProgramError, match=r"1\.key") as caught:
        crypto.FileKeys(tmp_path).wrap(KEY)
    assert not content or content not in str(caught.value)
