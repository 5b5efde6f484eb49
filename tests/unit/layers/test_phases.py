# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Playbooks ask for phases, and every phase that a layer may name is asked for by a playbook."""

from __future__ import annotations

import collections
import typing as t
from collections.abc import Iterator

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.exchange import (
    ExchangeError,
    layers_asked,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layer_file import (
    CLUSTER_PHASES,
    HOST_PHASES,
    UPGRADES,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import MEMBERSHIP, all_layers

from tests.support.playbooks import ROOT

BOOKS = sorted((ROOT / "playbooks").glob("*.yml"))


def asked() -> dict[str, list[str]]:
    """Return the phases that playbooks ask for, each with the playbooks that do."""
    found: dict[str, list[str]] = collections.defaultdict(list)
    for book in BOOKS:
        for arguments in _converging(yaml.safe_load(book.read_text())):
            if "phase" in arguments:
                found[arguments["phase"]].append(book.stem)
    return found


def _converging(plays: list[dict[str, t.Any]]) -> Iterator[dict[str, t.Any]]:
    for play in plays:
        for task in play.get("tasks", []):
            if "ironspan.hybrid.converge" in task:
                yield task["ironspan.hybrid.converge"] or {}


@pytest.mark.parametrize("phase", HOST_PHASES)
def test_a_playbook_of_its_name_converges_every_phase_of_hosts(phase: str) -> None:
    assert set(asked()[phase]) == {phase}
    assert all_layers().in_phase(phase)


@pytest.mark.parametrize("part", [part for part in UPGRADES if part != "none"])
def test_upgrade_gives_every_part_its_version(part: str) -> None:
    imported = [
        entry.get("ansible.builtin.import_playbook")
        for entry in yaml.safe_load((ROOT / "playbooks" / "upgrade.yml").read_text())
    ]
    # What no other host waits for is brought by the part's own playbook.
    assert "upgrade" in asked().get(f"upgrade_{part}", []) or f"{part}.yml" in imported
    assert all_layers().in_phase(f"upgrade_{part}")


def test_what_a_member_loses_is_asked_for() -> None:
    text = (ROOT / "playbooks" / "member_replace.yml").read_text()
    assert f"__ironspan_reset_phase: {MEMBERSHIP}" in text


def test_no_playbook_asks_for_a_phase_that_there_is_not() -> None:
    there = {*all_layers().phases(), "{{ __ironspan_reset_phase | default(omit) }}"}
    assert asked().keys() <= there


def test_layers_of_the_cluster_are_applied_by_the_playbook_of_their_phase() -> None:
    for name in all_layers().cluster:
        phase = all_layers().layers[name].phase
        assert phase in CLUSTER_PHASES
        assert f"name: ironspan.hybrid.{name}\n" in (ROOT / "playbooks" / f"{phase}.yml").read_text()


def test_playbooks_list_no_layers() -> None:
    """But one layer, or resources, of which nothing else is meant."""
    listed = [
        f"{book.name}: {arguments['layers']}"
        for book in BOOKS
        for arguments in _converging(yaml.safe_load(book.read_text()))
        if len([name for name in arguments.get("layers", ()) if "/" not in name]) > 1
    ]
    assert listed == []


def test_a_phase_or_layers_but_not_both() -> None:
    assert layers_asked({"phase": "control_plane"}) == ["node", "control_plane"]
    assert layers_asked({"layers": "base, node"}) == ["base", "node"]
    assert layers_asked({}) == []
    with pytest.raises(ExchangeError, match="phase and layers exclude each other"):
        layers_asked({"phase": "nodes", "layers": ["base"]})


def test_what_goes_back_with_a_layer_is_asked_for_with_it() -> None:
    back = ["nvidia_driver", "nvidia_fabric", "nvidia_health"]
    assert layers_asked({"mode": "rollback", "layers": ["nvidia_driver"]}) == back
    assert layers_asked({"mode": "rollback", "layers": ["nvidia_health"]}) == ["nvidia_health"]
    assert layers_asked({"mode": "rollback"}) == []
    assert layers_asked({"layers": ["nvidia_driver"]}) == ["nvidia_driver"]
