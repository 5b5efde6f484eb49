# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The small objects: what is written is read, and nothing else is."""

from __future__ import annotations

import dataclasses
import json
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironspan.backup.errors import ChainError
from ironspan.backup.manifest import Epoch, Manifest, Restored, Verdict, dump, load
from ironspan.backup.names import Names, parse_snapshot_id, snapshot_id
from ironspan.program.errors import ProgramError
from tests.support.backup_proof import proof

PROOF = proof()
MANIFEST = Manifest(
    site="lab", epoch=1, cluster_id="cdf818194e3a8c32", revision=5, compact_revision=1, hashkv=7,
    etcd_version="3.6.16", storage_version="3.6.0", created=9, size=32, sha256="00", parts=1,
    key_version="1", wrapped_key=b"\x00\xff", object_counts={"/registry/pods": 3},
)  # fmt: skip

everything = st.one_of(
    st.from_type(Manifest),
    st.builds(
        Epoch, st.integers(1), st.text(), st.integers(), st.none() | st.from_type(Restored), schema=st.just(2)
    ),
    st.builds(
        Verdict, st.integers(), st.text(), st.booleans(), st.integers(), st.integers(),
        st.floats(0, 1e6), st.text(), st.lists(st.text()).map(tuple), schema=st.just(2),
    ),
)  # fmt: skip


@given(everything)
def test_what_is_written_is_read(value: t.Any) -> None:
    value = dataclasses.replace(value, schema=2)
    assert load(type(value), dump(value, "x", PROOF), "x", PROOF) == value


@pytest.mark.parametrize(
    "value",
    [
        MANIFEST,
        Epoch(2, "cdf818194e3a8c32", 9, Restored("snapshot", 5, 10**9, 1)),
        Verdict(1, "s", False, 5, 9, 1.5, "az-1", ("hash differs",)),
    ],
)
def test_any_flipped_bit_is_found(value: Manifest | Epoch | Verdict) -> None:
    data = dump(value, "lab/x", PROOF)
    for at in range(len(data)):
        for bit in range(8):
            altered = bytearray(data)
            altered[at] ^= 1 << bit
            try:
                # Blanks between the fields may become other blanks.
                assert load(type(value), bytes(altered), "lab/x", PROOF) == value  # type: ignore[type-var]
                assert data[at : at + 1].isspace()
            except ChainError as error:
                assert error.altered == "lab/x"


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_other_bytes_are_refused_and_nothing_worse(data: bytes) -> None:
    with pytest.raises(ChainError):
        load(Manifest, data, "lab/x", PROOF)


def test_an_object_of_another_kind_is_refused() -> None:
    with pytest.raises(ChainError):
        load(Epoch, dump(MANIFEST, "lab/x", PROOF), "lab/x", PROOF)


def test_a_newer_schema_is_told() -> None:
    newer = dump(dataclasses.replace(MANIFEST, schema=3), "lab/x", PROOF)
    with pytest.raises(ChainError, match="schema 3; this version reads 2"):
        load(Manifest, newer, "lab/x", PROOF)


def test_fields_are_what_people_can_read() -> None:
    fields = json.loads(dump(MANIFEST, "lab/x", PROOF))
    assert fields["wrapped_key"] == "AP8="
    assert fields["object_counts"] == {"/registry/pods": 3}
    assert dump(MANIFEST, "lab/x", PROOF).endswith(b"}\n")


@given(st.integers(0, 10**19), st.integers(1, 2**34), st.integers(1, 999_999), st.integers(1, 999_999))
def test_names_say_what_they_are_of(revision: int, unix: int, epoch: int, number: int) -> None:
    names = Names("lab-1")
    identifier = snapshot_id(revision, unix)
    assert parse_snapshot_id(identifier) == (revision, unix)
    assert names.parse_epoch(names.epoch(epoch)) == epoch
    assert names.parse_snapshot(names.snapshot_data(epoch, identifier)) == (epoch, identifier, "data")
    assert names.parse_snapshot(names.snapshot_manifest(epoch, identifier)) == (
        epoch,
        identifier,
        "manifest.json",
    )
    assert names.parse_log(names.log(epoch, revision, number)) == (epoch, revision, number)
    assert names.parse_verdict(names.verdict(epoch, identifier, unix)) == (epoch, identifier, unix)


def test_snapshots_and_segments_sort_by_revision() -> None:
    names = Names("lab")
    assert names.snapshot_data(1, snapshot_id(9, 50)) < names.snapshot_data(1, snapshot_id(10, 40))
    assert names.log(1, 9, 12) < names.log(1, 10, 2)


@pytest.mark.parametrize("site", ["", "a/b", "..", ".a", "a" * 64, "ä", "a b"])
def test_a_site_that_makes_no_name_is_refused(site: str) -> None:
    with pytest.raises(ProgramError):
        Names(site)


@pytest.mark.parametrize("identifier", ["", "5-6", "../x", f"{5:020d}", f"{5:020d}-"])
def test_what_names_no_snapshot_is_refused(identifier: str) -> None:
    with pytest.raises(ProgramError, match="names no snapshot"):
        parse_snapshot_id(identifier)
