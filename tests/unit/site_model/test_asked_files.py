# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a run names has to be there, and to be usable, before anything is asked of anybody."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible import context
from ansible.utils.context_objects import CLIArgs
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.asked_files import problems_of_files

from tests.support.playbooks import ROOT

GROUPS = {"groups": {"all": ["az-1", "gpu-1"], "rack_a": ["gpu-1"], "ungrouped": []}}
TABLE = "name,bmc_address,rack,position\ngpu-1,10.20.1.11,rack-1,1\n"


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Callable[..., list[str]]:
    """Return what says what is wrong with a run, in a folder with a file of servers."""
    (tmp_path / "racks.csv").write_text(TABLE)
    (tmp_path / "wrong.csv").write_text(TABLE.replace("10.20.1.11", "10.20.1.311"))
    (tmp_path / "accounts.yml").write_text("SN1: {username: root, password: x}\n")
    (tmp_path / "accounts.yml").chmod(0o644)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))

    def ask(playbook: str, **given: t.Any) -> list[str]:
        monkeypatch.setattr(context, "CLIARGS", CLIArgs({"args": (str(ROOT / f"playbooks/{playbook}.yml"),)}))
        asked = {f"ironspan_{name}": value for name, value in given.items()}
        return [str(problem) for problem in problems_of_files(asked, GROUPS)]

    return ask


@pytest.mark.parametrize(
    ("playbook", "given", "says"),
    [
        ("bare_metal", {"expected": "none.csv"}, "none.csv: ironspan_expected: cannot be read: No such file"),
        (
            "server_drift",
            {"expected": "wrong.csv"},
            "wrong.csv:2: ironspan_expected.bmc_address: '10.20.1.311'",
        ),
        (
            "bmc_log",
            {"expected": "racks.csv", "servers": "gpu-2"},
            "racks.csv has no server 'gpu-2'; write gpu-1",
        ),
        (
            "bare_metal",
            {"expected": "racks.csv", "mapping": "map.yml"},
            "map.yml: ironspan_expected: cannot be",
        ),
        (
            "bmc_show",
            {"expected": "racks.csv", "factory": "none.yml"},
            "ironspan_factory: none.yml is not there",
        ),
        (
            "bmc_setup",
            {"expected": "racks.csv", "factory": "accounts.yml"},
            "can be read by others (mode 0644)",
        ),
        ("plan", {"planned": "server_retire", "expected": "racks.csv", "servers": ["x"]}, "no server 'x'"),
        (
            "server_attest",
            {"hosts": "gpu-11"},
            "ironspan_hosts: the inventory has no host 'gpu-11'; write gpu-1",
        ),
        ("node_remove", {"hosts": ["az-1", "nowhere"]}, "has no host 'nowhere'; write names of hosts"),
    ],
)
def test_what_is_not_there(found: t.Callable[..., list[str]], playbook: str, given: t.Any, says: str) -> None:
    (problem,) = found(playbook, **given)
    assert says in problem


@pytest.mark.parametrize(
    ("playbook", "given"),
    [
        ("bare_metal", {"expected": "racks.csv"}),
        ("bmc_show", {"expected": "~/racks.csv", "servers": "gpu-1"}),
        ("bmc_show", {"expected": "$HOME/racks.csv", "servers": []}),
        ("bare_metal", {"expected": "{{ inventory_dir }}/racks.csv"}),
        ("server_attest", {"hosts": "rack_a"}),
        ("server_attest", {"hosts": "gpu-*,nodes:!control_plane"}),
        ("node_add", {}),
        ("doctor", {"report": "~/doctor.json"}),
        ("access_review", {"audit_logs": ["racks.csv"]}),
        ("site", {"expected": "none.csv"}),
    ],
)
def test_what_is_there(found: t.Callable[..., list[str]], playbook: str, given: t.Any) -> None:
    assert found(playbook, **given) == []
