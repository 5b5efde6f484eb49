# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""docs/threat-model.md: every part that can be taken has a row, and every row a test that exists."""

from __future__ import annotations

import ast
import functools
import re

import pytest

from tests.support.playbooks import ROOT

PAGE = (ROOT / "docs" / "threat-model.md").read_text()
ROW = re.compile(r'^\| <a id="(?P<name>[a-z-]+)"></a>(?P<cells>.+)\|$', re.MULTILINE)
ROWS = {found["name"]: found["cells"].split(" | ") for found in ROW.finditer(PAGE)}
PARTS = {
    "worker", "answer", "engine", "pod", "edit", "control-plane", "etcd-user", "member", "drill", "collector",
    "backup-writer", "kms", "controller", "environment", "plans", "awx", "approver", "mirror", "azure-reader",
    "bmc", "bytes", "gpu-node", "gpu-repair", "gpud", "worker-machine", "page", "reports", "events",
    "azure-machines", "bmc-answers", "bmc-store", "ironic", "firmware", "awx-templates",
    "events-host",
}  # fmt: skip
"""Who may be an attacker. A part that comes into being comes in here too."""
TEST = re.compile(r"`(tests/[a-z0-9_/]+\.py)::(test_[a-z0-9_]+)`")


@functools.cache
def names_in(path: str) -> set[str]:
    """Return the names of a file's tests, those of classes too."""
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_part_has_a_row_of_four_cells() -> None:
    assert set(ROWS) == PARTS
    assert PAGE.count("<a id=") == len(ROWS), "a row is not of the form that is read"
    assert {name: len(cells) for name, cells in ROWS.items() if len(cells) != 4} == {}
    assert not [name for name, cells in ROWS.items() if not all(cell.strip() for cell in cells)]


@pytest.mark.parametrize("name", sorted(ROWS))
def test_every_row_names_tests_that_exist(name: str) -> None:
    named = ROWS[name][-1]
    found = TEST.findall(named)
    assert found, "no test is named"
    assert named.count("`") == 2 * len(found), f"write `tests/….py::test_…`: {named}"
    for path, test in found:
        assert test in names_in(path), f"{path} has no {test}"


@pytest.mark.parametrize("name", sorted(ROWS))
def test_pages_that_a_row_leads_to_exist(name: str) -> None:
    for page in re.findall(r"\]\(([a-z-]+\.md)", " ".join(ROWS[name])):
        assert (ROOT / "docs" / page).is_file(), page
