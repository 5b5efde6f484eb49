# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Readers of foreign bytes take them or refuse them as they promise, whatever the bytes are.

A long run is ``make fuzz MINUTES=30``, minutes of processor time for each reader. What it finds goes into
``findings/TARGET/`` and is tried in every run from then on.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from tests.support import fuzzing
from tests.support.fuzzing import Target, fuzz, judge
from tests.unit.fuzz.targets import TARGETS

FINDINGS = Path(__file__).parent / "findings"
INPUTS = 1500
MINUTES = float(os.environ.get("IRONSPAN_FUZZ_MINUTES", "1"))
SEED = int(os.environ.get("IRONSPAN_FUZZ_SEED", "0"))
EVERY = pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)


@EVERY
def test_what_was_found_once_is_refused_now(target: Target) -> None:
    for path in sorted((FINDINGS / target.name).glob("*.bin")):
        assert not judge(target, path.read_bytes()), path.name


@EVERY
def test_changed_bytes_are_taken_or_refused(target: Target) -> None:
    found = fuzz(target, SEED, INPUTS)
    assert not found, [f"{one.what} <- {one.data[:200]!r}" for one in found]


@pytest.mark.long
@EVERY
def test_changed_bytes_for_many_minutes(target: Target) -> None:
    found = fuzz(target, SEED or int.from_bytes(os.urandom(4)), 1 << 62, MINUTES * 60)
    for one in found:
        path = FINDINGS / target.name / f"{hashlib.sha256(one.data).hexdigest()[:12]}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(one.data)
    assert not found, [one.what for one in found]


def test_every_finding_has_a_reader() -> None:
    known = {target.name for target in TARGETS}
    assert {path.name for path in FINDINGS.iterdir() if path.is_dir()} <= known


def _fragile(data: bytes) -> None:
    if data[:2] == b"{}":
        raise ValueError
    number = data.find(b"7")
    if number > 0 and data[number - 1] == 0xFF:
        raise IndexError("past the end")


def _endless(data: bytes) -> None:
    while data:
        pass


def test_the_fuzzer_finds_what_is_wrong() -> None:
    target = Target("fragile", _fragile, (b'{"a": 17}',), (ValueError,), ("test_foreign_bytes.py",))
    found = fuzz(target, 1, 20_000)
    assert any("IndexError: past the end" in one.what for one in found)
    assert judge(target, b"{}") == ""


def test_a_reader_that_does_not_end_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzing, "HANG_CPU_S", 0.2)
    target = Target("endless", _endless, (b"",), (ValueError,), ())
    assert judge(target, b"x").startswith("it takes more than 0.2 s")
