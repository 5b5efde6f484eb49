# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""docs/faults.md: every promised message has a test that makes the fault and reads what is said."""

from __future__ import annotations

import re

import pytest

from tests.support.faults import PAGE, insist, promised
from tests.support.playbooks import ROOT

SILENT = {"killed"}
"""Faults without a message: what a test looks at is what is left behind."""
TESTS = "\n".join(
    path.read_text() for path in sorted((ROOT / "tests").rglob("test_*.py")) if path.name != "test_faults.py"
)


def test_the_page_is_read_as_it_is_written() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith('| <a id="')]
    assert len(rows) == len(promised()) > 25, "a row is not of the form that is read"


@pytest.mark.parametrize("name", sorted(promised()))
def test_every_fault_has_a_message_and_a_test(name: str) -> None:
    if name in SILENT:
        return
    assert promised()[name], "no message in backticks"
    assert re.search(rf'["\']{name}["\']', TESTS), f"no test insists on {name}"


def test_a_message_that_is_not_said_is_noticed() -> None:
    insist("clock", "- clock: found at least 3599.0 s behind the controller, wanted within 5 s of the\n"
           "controller's. Let chrony or systemd-timesyncd set the clock, then run this again.")  # fmt: skip
    with pytest.raises(AssertionError, match="clock"):
        insist("clock", "- clock: found at least 3599.0 s behind the controller. Let chrony set it.")


@pytest.mark.parametrize(
    "playbook", sorted(set(re.findall(r"(?:playbooks/)?([a-z_]+\.yml)", PAGE.read_text())))
)
def test_playbooks_that_are_named_exist(playbook: str) -> None:
    assert (ROOT / "playbooks" / playbook).is_file()
