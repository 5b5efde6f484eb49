# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which inventory the status command reads, and what it says of a bad one."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from ironspan.cli.outcome import Exit
from ironspan.cli.playbook import inventories


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("[defaults]\ninventory = inventories/lab\n", ["inventories/lab"]),
        ("[defaults]\ninventory = one.yml, two\n", ["one.yml", "two"]),
        ("[defaults]\nssh_args = 50%\n", ["inventories"]),
        ("", ["inventories"]),
    ],
)
def test_without_an_option_the_projects_inventory_is_read(
    settings: str, expected: list[str], tmp_path: pathlib.Path
) -> None:
    (tmp_path / "ansible.cfg").write_text(settings)
    assert inventories([], tmp_path) == [tmp_path / name for name in expected]


def test_an_inventory_that_is_named_wins(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert inventories(["mine.yml"], pathlib.Path("/nowhere")) == [tmp_path / "mine.yml"]


def test_a_bad_inventory_is_refused_with_its_problems(tmp_path: pathlib.Path) -> None:
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(json.dumps({"all": {"vars": {"site_nmae": "x"}, "hosts": {"a": {}}}}))
    # a process of its own: Ansible's plugin loader must come before any import from the collection
    done = subprocess.run(
        [sys.executable, "-m", "ironspan", "status", "-i", str(inventory)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == Exit.BAD_INPUT, done.stderr
    assert "site_nmae" in done.stderr
