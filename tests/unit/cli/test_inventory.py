# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Commands that read an inventory themselves, as processes of their own."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from ironspan.cli import inventory
from tests.support.playbooks import ROOT


@pytest.mark.parametrize("command", [["certs", "approve"], ["certs", "backup-key"], ["gpu", "policy"]])
def test_a_command_that_has_imported_of_the_collection_reads_a_site(
    command: list[str], tmp_path: Path
) -> None:
    """Ansible's loader comes after the first imports then; it once refused all that came later."""
    hosts = tmp_path / "hosts.yml"
    hosts.write_text("all: {vars: {site_nmae: x}}\n")
    done = subprocess.run(
        [sys.executable, "-m", "ironspan", *command, "-i", str(hosts)],
        text=True, capture_output=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert f"{hosts}:1: site_nmae: " in done.stderr


def test_the_option_for_the_inventory_is_declared_in_one_place() -> None:
    """Another declaration would call it otherwise, or forget that it may be repeated."""
    declaring = [
        path.name for path in (ROOT / "ironspan").rglob("*.py") if '"--inventory"' in path.read_text()
    ]
    assert declaring == ["inventory.py"]


@pytest.mark.parametrize(
    ("before", "after", "found"), [([], [], []), (["a"], [], ["a"]), ([], ["b", "c"], ["b", "c"])]
)
def test_what_was_said_before_the_name_of_a_command_below_stays(
    before: list[str], after: list[str], found: list[str]
) -> None:
    parser = argparse.ArgumentParser()
    inventory.add_option(parser)
    below = parser.add_subparsers().add_parser("below")
    inventory.add_option(below, default=argparse.SUPPRESS)
    words = [*(word for one in before for word in ("-i", one)), "below"]
    assert parser.parse_args([*words, *(word for one in after for word in ("-i", one))]).inventory == found
    assert parser.parse_args([]).inventory == []
