# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Commands that read an inventory themselves, as processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("command", [["certs", "approve"], ["certs", "backup-key"], ["gpu", "policy"]])
def test_a_command_that_has_imported_of_the_collection_reads_a_site(
    command: list[str], tmp_path: Path
) -> None:
    """Ansible's loader comes after the first imports then; it once refused all that came later."""
    inventory = tmp_path / "hosts.yml"
    inventory.write_text("all: {vars: {site_nmae: x}}\n")
    done = subprocess.run(
        [sys.executable, "-m", "ironspan", *command, "-i", str(inventory)],
        text=True, capture_output=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert f"{inventory}:1: site_nmae: " in done.stderr
