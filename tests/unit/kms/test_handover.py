# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A seed that is sealed for other hosts: any of the former ones opens it, and nothing else."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from ironspan.kms.handover import open_sealed, seal

SEED = b"s" * 32
WRAPPED = b"wrapped"
KNOWN = {hashlib.sha256(bytes([number])).digest(): bytes([number]) * 32 for number in range(4)}


def test_each_of_the_former_seeds_opens_it_alone() -> None:
    sealed = seal(WRAPPED, SEED, KNOWN)
    for digest, former in KNOWN.items():
        assert open_sealed(WRAPPED, sealed, {digest: former}) == SEED
        assert open_sealed(b"another", sealed, {digest: former}) is None
        assert open_sealed(WRAPPED, sealed, {digest: SEED}) is None
    assert open_sealed(WRAPPED, sealed, {}) is None


@given(st.binary(max_size=400))
def test_what_was_never_sealed_is_not_opened(content: bytes) -> None:
    assert open_sealed(WRAPPED, content, KNOWN) is None


@given(st.integers(min_value=0), st.integers(min_value=1, max_value=255))
def test_a_changed_one_is_not_opened(place: int, change: int) -> None:
    (digest, former), *_ = KNOWN.items()
    sealed = bytearray(seal(WRAPPED, SEED, {digest: former}))
    sealed[place % len(sealed)] ^= change
    assert open_sealed(WRAPPED, bytes(sealed), {digest: former}) is None
