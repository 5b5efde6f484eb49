# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What layers say of themselves gives the lists that were written by hand before (``before.json``)."""

from __future__ import annotations

import ast
import fnmatch
import json
import pathlib
import typing as t

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import load_specification

from tests.support.playbooks import ROOT

BEFORE: dict[str, t.Any] = json.loads((pathlib.Path(__file__).parent / "before.json").read_text())


@pytest.mark.parametrize("name", ["order", "cluster", "pending", "members", "one_by_one", "pod_networks"])
def test_lists_keep_their_order(name: str) -> None:
    assert list(getattr(all_layers(), name)) == BEFORE[name]


@pytest.mark.parametrize("phase", BEFORE["phases"])
def test_phases_converge_what_playbooks_listed(phase: str) -> None:
    assert all_layers().in_phase(phase) == BEFORE["phases"][phase]


@pytest.mark.parametrize("part", BEFORE["upgrade"])
def test_upgrades_change_what_the_playbook_listed(part: str) -> None:
    assert all_layers().in_phase(f"upgrade_{part}") == BEFORE["upgrade"][part]


def test_what_a_member_loses_is_the_same() -> None:
    # A reset takes the layers of a document in its own order.
    assert sorted(all_layers().in_phase("membership")) == sorted(BEFORE["membership"])


def test_hosts_have_the_layers_of_the_same_groups() -> None:
    groups = {name: list(all_layers().layers[name].hosts) for name in all_layers().order if name != "base"}
    assert groups == BEFORE["groups_of"]
    assert all_layers().layers["base"].hosts == ("all",)


def test_what_members_wait_for_and_services() -> None:
    assert {name: list(needs) for name, needs in all_layers().waits_for.items()} == BEFORE["waits_for"]
    assert list(all_layers().waits_for) == list(BEFORE["waits_for"])
    assert sorted(all_layers().dependent) == BEFORE["dependent"]
    assert all_layers().units == BEFORE["units"]


def test_groups() -> None:
    groups = all_layers().groups
    assert sorted(groups) == sorted(BEFORE["groups"])
    assert sorted(name for name, group in groups.items() if group.purpose) == sorted(BEFORE["purposes"])
    assert {name: list(group.inside) for name, group in groups.items() if group.inside} == BEFORE["inside"]


def test_scopes_and_ranges_of_variables() -> None:
    site_wide = [name for name in load_specification().options if all_layers().is_site_wide(name)]
    bare_metal, azure = (
        {name for name in site_wide if name.startswith(prefix)} for prefix in ("site_bare_metal_", "azure_")
    )
    assert len(bare_metal) == 15
    assert len(azure) == 32
    assert sorted(set(site_wide) - bare_metal - azure) == sorted(BEFORE["site_wide"])
    assert {name: list(limit) for name, limit in all_layers().limits.items()} == BEFORE["limits"] | {
        "azure_zones": [1, 3, "an availability zone"],
        "base_max_clock_skew_seconds": [1, 86400, "seconds; asking for the time takes some itself"],
    }


def test_what_versions_choose_of_the_mirror() -> None:
    versions = all_layers().versions
    assert {name: list(v.files) for name, v in versions.items() if v.files} == BEFORE["files"]
    assert {name: list(v.images) for name, v in versions.items() if v.images} == BEFORE["images"]
    assert {name: v.only_with for name, v in versions.items() if v.only_with} == BEFORE["only_with"]


def lists_of_layers(tree: ast.AST) -> list[int]:
    """Return the lines of literals that name more than three layers."""
    names = {*all_layers().order, *all_layers().cluster}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            parts = [*node.keys, *node.values]
        elif isinstance(node, ast.Tuple | ast.List | ast.Set):
            parts = list(node.elts)
        else:
            continue
        named = {part.value for part in parts if isinstance(part, ast.Constant)} & names
        if len(named) > 3:
            found.append(node.lineno)
    return found


def test_nobody_else_lists_layers() -> None:
    listed = [
        f"{file.relative_to(ROOT)}:{line}"
        for file in (ROOT / "plugins").rglob("*.py")
        for line in lists_of_layers(ast.parse(file.read_text()))
    ]
    # Not layers: the parts of a site that playbooks and upgrades go through, which layers choose from.
    home = "plugins/plugin_utils/site/layer_file.py"
    assert [place for place in listed if not place.startswith(home)] == []
    assert lists_of_layers(ast.parse("X = ('base', 'node', 'etcd', 'dns')")) == [1]


def test_the_collection_is_packed_with_them() -> None:
    ignored = yaml.safe_load((ROOT / "galaxy.yml").read_text())["build_ignore"]
    files = [file.relative_to(ROOT) for file in (ROOT / "roles").glob("*/meta/layer.yml")]
    assert len(files) == len(all_layers().layers)
    parts = {str(part) for file in files for part in (file, *file.parents)}
    assert [part for part in parts for pattern in ignored if fnmatch.fnmatch(part, pattern)] == []
