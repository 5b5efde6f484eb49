# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan azure import`` and ``export``, as processes of their own, with the example inventory."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
REGION = "azure_region: westeurope"
NETWORK = (
    "/subscriptions/72f988bf-86f1-41af-91ab-2d7cd011db47/resourceGroups/hub/providers"
    "/Microsoft.Network/virtualNetworks/hub"
)


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    """Return a copy of the example whose estate is not commented out."""
    folder = tmp_path / "inventory"
    shutil.copytree(ROOT / "inventories" / "example", folder)
    path = folder / "group_vars" / "all.yml"
    before, begins, estate = path.read_text().partition("# azure_subscription")
    lines = [line.removeprefix("# ") for line in (begins + estate).splitlines()]
    path.write_text(before + "\n".join(lines) + "\n")
    return folder


def ironspan(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    key = base64.b64encode(bytes(32)).decode()
    return subprocess.run(
        [sys.executable, "-m", "ironspan", "azure", *arguments],
        env={**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "IRONSPAN_PKI_KEY": key},
        text=True, capture_output=True, check=False, timeout=120,
    )  # fmt: skip


def test_import_fills_in_and_names_what_contradicts_with_its_line(inventory: Path, tmp_path: Path) -> None:
    file = tmp_path / "outputs.json"
    values = {"hub": {"value": NETWORK, "sensitive": False}, "azure_region": {"value": "northeurope"}}
    file.write_text(json.dumps(values))
    done = ironspan("-i", str(inventory), "import", str(file), home=tmp_path)
    assert done.returncode == 2, done.stderr
    assert f"virtual_network: {NETWORK}" in done.stdout
    where = inventory / "group_vars" / "all.yml"
    line = where.read_text().splitlines().index(REGION) + 1
    assert (
        f"{where}:{line}: azure_region: is not what the output azure_region of Terraform says" in done.stderr
    )
    refused = ironspan("import", "-i", str(inventory), str(where), home=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "line 1, is no JSON" in refused.stderr


def test_export_writes_the_blocks_of_the_site(inventory: Path, tmp_path: Path) -> None:
    done = ironspan("export", "-i", str(inventory), home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "to = azurerm_linux_virtual_machine.az_1" in done.stdout


def test_egress_prints_what_pods_reach_of_the_estate(inventory: Path, tmp_path: Path) -> None:
    options = ("--owner", "storage team", "--expires", "2027-03-31")
    done = ironspan("egress", "-i", str(inventory), *options, home=tmp_path)
    assert done.returncode == 0, done.stderr
    entries = yaml.safe_load(done.stdout)
    assert [entry["ports"] for entry in entries] == [[443]] * len(entries)
    # Weights by both of their endpoints; the vault and the backup are not for pods.
    assert [entry["destination"].partition(".")[2] for entry in entries] == [
        "blob.core.windows.net",
        "dfs.core.windows.net",
    ]
