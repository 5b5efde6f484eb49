# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Tests that the documentation names are there, and what it promises of runbooks and cases."""

from __future__ import annotations

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
DOCS = sorted((ROOT / "docs").glob("*.md"))
NAMED = re.compile(r"`(?:tests/)?((?:\w+/)*test_\w+\.py)?(?:::)?(test_\w+)?(?:\[.*\])?`")
"""A file, a test in a file, or a test alone."""


@pytest.fixture(scope="module")
def tests() -> dict[str, set[str]]:
    """Return the tests of each file, by its path below tests/."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        tree = ast.parse(path.read_text())
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        found[str(path.relative_to(ROOT / "tests"))] = names
    return found


def named(text: str) -> list[tuple[str, str]]:
    """Return the tests that a text names: file and function, either may be empty."""
    return [(file, name) for file, name in NAMED.findall(text) if file or name]


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.stem)
def test_what_the_documentation_names_is_there(path: pathlib.Path, tests: dict[str, set[str]]) -> None:
    missing = []
    for file, name in named(path.read_text()):
        places = [where for where in tests if not file or f"/{where}".endswith(f"/{file}")]
        if not any(not name or name in tests[where] for where in places):
            missing.append(f"{file}::{name}")
    assert not missing


def test_the_cases_are_all_there_and_each_names_its_tests_with_their_file() -> None:
    text = (ROOT / "docs/etcd-cases.md").read_text()
    rows = re.findall(r"^\| (\d+) \| (.+) \| (.+) \| (.+) \|$", text, re.MULTILINE)
    assert [int(row[0]) for row in rows] == list(range(1, 42))
    for number, *_, shown in rows:
        assert named(shown), number
        assert all(file and name for file, name in named(shown)), number


def test_every_runbook_of_a_restore_has_its_test() -> None:
    text = (ROOT / "docs/restore.md").read_text()
    runbooks = text.partition("## Runbooks")[2].partition("\n## ")[0].split("\n### ")[1:]
    assert len(runbooks) >= 9
    assert not [one.splitlines()[0] for one in runbooks if not named(one)]


def test_every_alert_has_its_test() -> None:
    rows = [line for line in (ROOT / "docs/etcd-care.md").read_text().splitlines() if "<a id=" in line]
    assert len(rows) >= 16
    assert not [row for row in rows if not named(row.rpartition("|")[0].rpartition("|")[2])]
