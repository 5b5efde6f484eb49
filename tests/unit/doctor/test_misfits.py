# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A host that answers the doctor with anything is named, and the others are judged all the same."""

from __future__ import annotations

import json
import typing as t

import hypothesis.strategies as st
import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.answer import (
    CERTIFICATES,
    HEALTH,
    read_whole,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor import misfits, table
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.findings import Evidence
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.page import page
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netcheck import report as netcheck
from hypothesis import given, settings

from tests.unit.converge.test_hostile_host import ANYTHING
from tests.unit.doctor.samples import Draft, answer

FIELDS = [*answer(), "invented"]
ANSWERS = st.dictionaries(st.sampled_from(FIELDS), ANYTHING, max_size=4).map(
    lambda changes: {**answer("kubelet.service"), **changes}
)
SILENT = ("unreachable", "error")
"""What the controller alone writes; the notebook takes neither from a host."""


def doctor(known: Evidence) -> dict[str, t.Any]:
    return table.examine(known, "2026-11-22T00:00:00+00:00", 1.0)


def network(known: Evidence) -> dict[str, t.Any]:
    return netcheck.examine(known, "2026-11-22T00:00:00+00:00", 1.0, ())


@settings(deadline=None, max_examples=200)
@given(hostile=ANSWERS)
@pytest.mark.parametrize("examine", [doctor, network])
def test_any_answer_ends_no_report(examine: t.Callable[[Evidence], dict[str, t.Any]], hostile: t.Any) -> None:
    draft = Draft()
    draft.hosts["rack-1"] = {name: each for name, each in hostile.items() if name not in SILENT}
    draft.hosts["az-1"]["disks"][0]["free_bytes"] = 1
    report = misfits.examined(draft.evidence(), examine)
    if examine is doctor:
        assert any("az-1" in finding["hosts"] for check in report["checks"] for finding in check["findings"])
        assert "az-1" in page(report)


def test_a_host_that_cannot_be_read_is_named() -> None:
    draft = Draft()
    draft.hosts["rack-1"]["disks"] = 7
    report = misfits.examined(draft.evidence(), doctor)
    said = [finding for check in report["checks"] for finding in check["findings"]]
    words = misfits.WHY.split(";")[0]
    assert [finding["hosts"] for finding in said if words in finding["what"]] == [["rack-1"]]


def test_a_fault_of_our_own_is_not_put_down_to_a_host() -> None:
    def broken(known: Evidence) -> dict[str, t.Any]:
        raise KeyError("ours")

    with pytest.raises(KeyError, match="ours"):
        misfits.examined(Draft().evidence(), broken)


GOOD: dict[str, t.Any] = {
    "certificates": [{"path": "/a", "field": "", "pem": "x"}],
    "unreadable": [],
    "written": {"/a": 1.5},
    "started": {},
    "public_keys": "",
}


@pytest.mark.parametrize(
    ("form", "given", "words"),
    [
        (CERTIFICATES, {**GOOD, "certificates": 5}, "certificates is no list"),
        (CERTIFICATES, {**GOOD, "certificates": [{"path": "/a"}]}, "certificates.0 has no field"),
        (CERTIFICATES, {"changed": False}, "it has no certificates"),
        (HEALTH, {"health": {"seconds": "1", "time_unix": 1}}, "health.seconds is no number"),
        (HEALTH, {"health": []}, "health is no mapping"),
        (HEALTH, {}, "it has no health"),
    ],
)
def test_what_has_another_form_fails_its_host(form: t.Any, given: t.Any, words: str) -> None:
    found = read_whole(given, form)
    assert found["failed"] and words in found["msg"]


def test_nothing_that_ansible_obeys_comes_along() -> None:
    obeyed = {"ansible_facts": {"site_plan_approvals": 0}, "add_host": {"host_name": "x"}}
    assert read_whole({**GOOD, **obeyed, "changed": False}, CERTIFICATES) == {**GOOD, "changed": False}
    health = {"health": {"seconds": 1.0, "time_unix": 2.0, "disks": []}}
    assert json.loads(json.dumps(read_whole({**health, **obeyed}, HEALTH))) == health
