# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The inventory plugin and the site's own Ironic, before it is there and when it does not answer."""

from __future__ import annotations

import json
import os
import subprocess
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import generate_key_file, open_store

from tests.support import metal_site
from tests.support.playbooks import BIN, ROOT

ROW = "name,bmc_address,rack,position,nic1_mac\ngpu-1,192.0.2.1,a,1,5c:25:73:00:01:01\n"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site whose Ironic shall run on a host of its own; nothing runs there yet."""
    key = generate_key_file(tmp_path / "key")
    made = metal_site.site(
        tmp_path,
        site_bare_metal_cloud="",
        site_bare_metal_inventory="",
        site_pki_key_file=str(key),
        ironic_hardware_types=["fake-hardware"],
        ironic_api_port=9,
        ironic_address="127.0.0.1",
        site_lab=True,
    )
    content = json.loads((made / "hosts.yml").read_text())
    content["all"]["children"] |= {
        "on_prem": {"hosts": {"d1": {"site_address": "10.2.0.5"}}},
        "ironic": {"hosts": {"d1": {}}},
    }
    (made / "hosts.yml").write_text(json.dumps(content))
    (tmp_path / "racks.csv").write_text(ROW)
    plugin = {"plugin": "ironspan.hybrid.ironic", "expected": "../racks.csv"}
    (made / "ironic.yml").write_text(json.dumps(plugin))
    return made


def mark(site: Path) -> str:
    """Return why every run is refused, "" when none is."""
    command = [str(BIN / "ansible-inventory"), "-i", str(site), "--list"]
    environment = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    variables: dict[str, t.Any] = json.loads(done.stdout)["_meta"]["hostvars"]["d1"]
    return str(variables.get("__ironspan_unread", ""))


def test_an_ironic_that_was_never_brought_up_has_no_servers_and_holds_up_no_run(site: Path) -> None:
    assert mark(site) == ""


def test_one_that_does_not_answer_refuses_runs_and_says_what_brings_it_up(site: Path) -> None:
    store = open_store(site.parent / "pki", site.parent / "key")
    store.ensure_cas()
    store.ironic.ensure()
    assert "Ironic does not answer" in mark(site)
    assert "ansible-playbook playbooks/site.yml --limit ironic" in mark(site)


def test_a_site_that_is_not_right_is_named_as_the_reason(site: Path) -> None:
    content = json.loads((site / "hosts.yml").read_text())
    content["all"]["vars"]["site_nmae"] = "typing mistake"
    (site / "hosts.yml").write_text(json.dumps(content))
    said = mark(site)
    assert "the site's Ironic is not known, because its inventory has problems" in said
    assert "site_nmae" in said
