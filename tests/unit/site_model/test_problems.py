# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is said when there are many problems: each kind, how often, and where; never megabytes."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import (
    LONGEST_LINE,
    MOST_LINES,
    Once,
    Place,
    Problem,
    Problems,
    listed,
    said_of,
)
from hypothesis import given
from hypothesis import strategies as st

PROBLEMS = st.lists(
    st.builds(
        Problem,
        st.sampled_from(["/site/hosts.yml", "/site/group_vars/all.yml"]),
        st.integers(0, 9999),
        st.text(min_size=1, max_size=40),
        st.text(min_size=1, max_size=3000),
        st.text(min_size=1, max_size=40),
    ),
    min_size=1,
    max_size=400,
)


def address(line: int) -> Problem:
    return Problem("/site/hosts.yml", line, "ansible_host", f"'10.0.0.{line}x' is no address", "write one")


def test_the_same_mistake_on_many_hosts_is_one_with_a_count() -> None:
    lines = listed(address(line) for line in range(20, 3020)).splitlines()
    assert len(lines) == 6
    assert lines[0].startswith("/site/hosts.yml:20: ansible_host: '10.0.0.20x'")
    assert lines[5] == "  and 2995 more of this kind, lines 25 to 3019 of /site/hosts.yml"


def test_other_problems_stand_between_them() -> None:
    other = Problem("/site/hosts.yml", 400, "hosts.a", "is in no group", "list it in one")
    text = listed(sorted([*(address(line) for line in range(1, 800)), other]))
    assert str(other) in text.splitlines()


def test_five_are_said_one_by_one() -> None:
    assert len(listed(address(line) for line in range(5)).splitlines()) == 5


def test_all_are_counted() -> None:
    text = said_of([address(line) for line in range(7)], "the plan")
    assert text.splitlines()[0] == "7 problems in the plan; no host was contacted."


@given(PROBLEMS)
def test_it_is_bounded_and_says_where(problems: list[Problem]) -> None:
    text = listed(problems)
    assert len(text) <= (MOST_LINES + 1) * (LONGEST_LINE + 200)
    assert all(text.count(problem.file) for problem in problems[:1])


def test_a_check_says_a_line_once_whatever_host_it_names() -> None:
    problems = Problems()
    once, other = Once(problems), Once(problems)
    line = Place("all.yml", 3)
    for host in ("gpu-1", "gpu-2"):
        once.add(line, "a", f"is wrong for {host}", "correct it")
        once.add(line, "b", f"is wrong for {host}", "correct it")
        once.add(line, "b", f"is old for {host}", "correct it", what="old")
        other.add(line, "a", f"is late for {host}", "correct it")
    found = [(each.path, each.message) for each in problems]
    assert found == [
        ("a", "is late for gpu-1"),
        ("a", "is wrong for gpu-1"),
        ("b", "is old for gpu-1"),
        ("b", "is wrong for gpu-1"),
    ]
