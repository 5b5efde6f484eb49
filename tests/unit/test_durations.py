# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""All tests fit into their time: what each file takes is written down, and added up."""

from __future__ import annotations

import pathlib

import pytest

from tests.support import durations

REPORT = """\
<testsuites><testsuite name="pytest">
<testcase classname="tests.unit.engine.test_a" name="test_one[x.y::z]" time="1.5"/>
<testcase classname="tests.unit.engine.deeper.test_b" name="test_two" time="2"/>
<testcase classname="tests.unit.test_house" name="test_three" time="0.25"/>
<testcase classname="tests.integration.test_cluster.TestOf" name="test_four" time="60"/>
<testcase classname="tests.integration.test_cluster" name="test_five" time="4"/>
<testcase classname="" name="tests.integration.test_broken" time="0.1"/>
</testsuite></testsuites>
"""


def files(*folders: str) -> set[str]:
    """Return what has a figure of its own below folders: every file of tests, every folder of unit tests."""
    found = {
        str(path.relative_to(durations.ROOT))
        for folder in folders
        for path in (durations.ROOT / folder).rglob("test_*.py")
    }
    return {durations.unit_of(path) for path in found}


def test_every_file_of_labs_and_benches_is_listed() -> None:
    """Unit tests are short until `make durations` says otherwise; a lab never is."""
    unlisted = files("tests/integration", "tests/bench") - set(durations.load().seconds)
    assert sorted(unlisted) == [], "run them, then `make durations`: what has no figure is in no budget"


def test_what_is_listed_exists() -> None:
    gone = set(durations.load().seconds) - files("tests/integration", "tests/bench", "tests/unit")
    assert sorted(gone) == [], "`make durations` drops them"


def test_every_part_keeps_its_budget() -> None:
    listed = durations.load()
    assert listed.over(listed.seconds) == []


def test_the_whole_run_keeps_its_time() -> None:
    """On two cores: lint and unit tests beside the labs where these wait, then the budgets alone."""
    listed = durations.load()
    labs = sorted(
        (s for path, s in listed.seconds.items() if path.startswith("tests/integration")), reverse=True
    )
    alone = durations.parts(listed.seconds)["tests/bench"]
    assert durations.together(labs, 2) + alone <= listed.run


def test_no_file_of_labs_is_longer_than_its_share() -> None:
    """Files are never divided: one that takes more than half of all would be waited for."""
    labs = [s for path, s in durations.load().seconds.items() if path.startswith("tests/integration")]
    assert max(labs) <= sum(labs) / 2


def test_what_is_over_its_budget_is_named() -> None:
    listed = durations.Durations("", 60, {"tests/unit": 10, "tests/bench": 5}, {})
    measured = {
        "tests/unit/a": 6.0,
        "tests/unit/b": 5.0,
        "tests/bench/test_a.py": 5.0,
        "tests/new/test_b.py": 1.0,
    }
    assert listed.over(measured) == [
        "tests/unit: 11 s, budget 10 s",
        "tests/new: tests/durations.yml has no budget for it",
    ]


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("tests/unit/engine/test_a.py::test_x[a::b]", "tests/unit/engine"),
        ("tests/unit/engine/deeper/test_a.py", "tests/unit/engine"),
        ("tests/unit/test_house.py::test_x", "tests/unit/test_house.py"),
        ("tests/integration/test_lab.py::test_x", "tests/integration/test_lab.py"),
    ],
)
def test_what_a_test_belongs_to(path: str, unit: str) -> None:
    assert durations.unit_of(path) == unit


def test_workers_take_the_next_file_when_they_can() -> None:
    assert durations.together([5, 4, 3, 3, 3], 2) == 10
    assert durations.together([3, 3, 3, 4, 5], 2) == 11
    assert durations.together([], 2) == 0


def test_a_report_is_added_up_by_file() -> None:
    assert durations.read(REPORT) == {
        "tests/unit/engine": 3.5,
        "tests/unit/test_house.py": 0.25,
        "tests/integration/test_cluster.py": 64,
    }


def test_what_was_run_is_written_and_what_is_gone_is_not(tmp_path: pathlib.Path) -> None:
    here = "tests/unit/test_durations.py"
    former = durations.Durations(
        "", 60, {"tests/unit": 10}, {here: 1, "tests/unit/test_house.py": 2, "tests/gone.py": 3}
    )
    durations.write({here: 4.06}, former, tmp_path / "durations.yml")
    written = durations.load(tmp_path / "durations.yml")
    assert written.seconds == {here: 4.1, "tests/unit/test_house.py": 2}
    assert (written.run, written.budgets) == (60, {"tests/unit": 10})
    assert written.measured.endswith("cores")


def test_the_table_has_the_longest_first_and_what_was_expected() -> None:
    listed = durations.Durations("", 60, {"tests/bench": 50}, {"tests/bench/test_b.py": 20})
    lines = durations.table({"tests/bench/test_a.py": 1.0, "tests/bench/test_b.py": 30.0}, listed)
    assert [line.split() for line in lines[1:]] == [
        ["30s", "20s", "tests/bench/test_b.py"],
        ["1s", "0s", "tests/bench/test_a.py"],
        ["31s", "50s", "tests/bench:", "all", "of", "it,", "and", "its", "budget"],
    ]
