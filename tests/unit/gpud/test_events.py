# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What events mean for the Node, and that each counts once."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.policy import shipped
from hypothesis import given
from hypothesis import strategies as st

from ironspan.gpud import events
from ironspan.gpud.checks.base import Finding
from ironspan.gpud.events import Record

POLICY = shipped()
BOOT = "b" * 36


def record(event: str, gpu: str = "GPU-1", at: float = 1000.0, **more: object) -> Record:
    return Record(event, gpu, at, at, BOOT, **more)  # type: ignore[arg-type]


def told(*each: tuple[str, float]) -> dict[tuple[str, str], Record]:
    """Return the records after an XID was told by sources at times."""
    records: dict[tuple[str, str], Record] = {}
    for source, at in each:
        records = events.occurred(records, record("xid 79", at=at, source=source))
    return records


@pytest.mark.parametrize(
    ("tellings", "count"),
    [
        ([("kmsg", 0)], 1),
        ([("kmsg", 0), ("nvml", 2)], 1),
        ([("nvml", 0), ("kmsg", 9)], 1),
        ([("kmsg", 0), ("nvml", 11)], 2),
        ([("kmsg", 0), ("kmsg", 1)], 2),
        ([("kmsg", 0), ("nvml", 1), ("kmsg", 2)], 2),
        ([("kmsg", 0), ("nvml", 1), ("kmsg", 2), ("nvml", 3)], 2),
        ([("kmsg", 0), ("kmsg", 1), ("nvml", 2)], 2),
    ],
)
def test_what_both_tell_counts_once(tellings: list[tuple[str, float]], count: int) -> None:
    (found,) = told(*tellings).values()
    assert found.count == count
    assert (found.since, found.last) == (0, max(at for _, at in tellings))


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30))
def test_one_source_alone_counts_each(times: list[float]) -> None:
    (found,) = told(*(("kmsg", at) for at in sorted(times))).values()
    assert found.count == len(times)


@given(st.lists(st.sampled_from(["xid 31", "xid 79", "xid 48", "nvml ecc_off", "xid 999"]), unique=True))
def test_the_condition_follows_the_classes(found: list[str]) -> None:
    judged = events.judge([record(event) for event in found], POLICY, known=True)
    bad = [event for event in found if events.action(event, POLICY) in events.UNHEALTHY]
    assert judged.status == ("False" if bad else "True")
    if "xid 79" in found:
        assert judged.reason == "Xid79"
    listed = json.loads(judged.events)
    assert sorted(each["event"] for each in listed) == sorted(found)
    assert judged.reason.isalnum()


def test_nothing_is_said_to_be_well_that_was_not_read() -> None:
    assert events.judge([], POLICY, known=False).status == "Unknown"
    assert events.judge([record("xid 79")], POLICY, known=False).status == "False"


def test_a_line_that_says_that_nothing_is_to_be_done_is_not_shown() -> None:
    judged = events.judge([record("xid 149", ignored=True)], POLICY, known=True)
    assert (judged.status, judged.events) == ("True", "[]")


@pytest.mark.parametrize(
    ("event", "reason"),
    [("xid 79", "Xid79"), ("nvml remap_pending", "NvmlRemapPending"), ("sxid fatal", "SxidFatal"),
     ("sxid non-fatal", "SxidNonFatal"), ("dcgm DCGM_FR_X", "DcgmDCGMFRX")],
)  # fmt: skip
def test_reasons(event: str, reason: str) -> None:
    assert events.camel(event) == reason


@given(st.lists(st.text(max_size=400), max_size=60))
def test_the_annotation_is_bounded_and_json_whatever_the_words(details: list[str]) -> None:
    found = [record("xid 79", f"GPU-{number}", detail=detail) for number, detail in enumerate(details)]
    judged = events.judge(found, POLICY, known=True)
    assert len(judged.events) <= events.ANNOTATION_BYTES
    assert isinstance(json.loads(judged.events), list)
    assert len(judged.message) <= 512


Step = tuple[float, list[str]]


@given(
    st.lists(
        st.tuples(st.floats(0.5, 50), st.lists(st.sampled_from(["a", "b", "c"]), unique=True)), max_size=30
    )
)
def test_a_state_is_there_from_when_it_is_found_until_it_was_not_for_a_while(steps: list[Step]) -> None:
    clear_s = 60.0
    now = 0.0
    records: dict[tuple[str, str], Record] = {}
    seen: dict[str, float] = {}
    begun: dict[str, float] = {}
    missing: dict[str, float] = {}
    for wait, names in steps:
        now += wait
        findings = [("H08", Finding(f"nvml {name}", "GPU-1", "x")) for name in names]
        records = events.found(records, findings, ["H08"], now, BOOT, clear_s)
        for name in ("a", "b", "c"):
            if name in names:
                begun.setdefault(name, now)
                seen[name] = now
                missing.pop(name, None)
            elif name in begun:
                missing.setdefault(name, now)
                if now - missing[name] >= clear_s:
                    del begun[name], missing[name]
        assert {key[0].split()[1] for key in records} == set(begun)
        assert {key[0].split()[1]: each.since for key, each in records.items()} == begun


def test_a_check_that_did_not_look_clears_nothing() -> None:
    records = events.found({}, [("H02", Finding("nvml hung"))], ["H02"], 0, BOOT, 60)
    for now in (100, 200, 300):
        records = events.found(records, [], ["H01"], now, BOOT, 60)
    assert list(records) == [("nvml hung", "")]


def test_what_is_forgotten_and_when() -> None:
    found: Sequence[Record] = [
        record("xid 31"), record("xid 79"), record("nvml ecc_off", state=True), record("xid 48", "GPU-2")
    ]  # fmt: skip
    records = {each.key: each for each in found}
    day = 1000 + events.KEEP_HARMLESS_S
    assert {key[0] for key in events.expired(records, POLICY, day, BOOT)} == {
        "xid 79",
        "nvml ecc_off",
        "xid 48",
    }
    assert events.expired(records, POLICY, 1001, "another boot") == {}
    assert {key[0] for key in events.without_gpu(records, "GPU-1")} == {"nvml ecc_off", "xid 48"}
    assert {key[0] for key in events.without_gpu(records, "")} == {"nvml ecc_off"}


def test_there_are_never_too_many() -> None:
    records: dict[tuple[str, str], Record] = {}
    for number in range(events.MOST_RECORDS + 50):
        records = events.occurred(records, record(f"xid {number}", at=number))
    assert len(records) == events.MOST_RECORDS
    assert ("xid 0", "GPU-1") not in records
