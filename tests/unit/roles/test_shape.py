# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Roles have one shape, their defaults equal their specifications, playbooks have one shape too."""

from __future__ import annotations

import re
import typing as t

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.verdicts import (
    RETIRED_GROUP,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers

from tests.unit.roles.conftest import ROLES, ROOT

CONTROLLER = "{{ lookup('ironspan.hybrid.controller') }}"
ON_THE_CONTROLLER = ("localhost", CONTROLLER)
PHASES = (
    "validate", "assess", "prepare", "etcd", "etcd_events", "etcd_backup", "admission_try",
    "control_plane", "etcd_events", "access", "gpu_repair", "network", "nodes", "names", "isolation",
    "verify",
)  # fmt: skip
SCOPED = {
    "prepare": ":&__ironspan_pending",
    "etcd": ":&__ironspan_pending_etcd",
    "etcd_events": ":&__ironspan_pending_etcd_events",
    "etcd_backup": ":&__ironspan_pending_etcd_backup",
    "control_plane": ":&__ironspan_pending_control_plane",
    "access": ":&__ironspan_pending_access",
    "gpu_repair": ":&__ironspan_pending_gpu_repair",
    "nodes": ":&__ironspan_pending_node",
}


def load(*path: str) -> t.Any:
    """Return the content of a YAML file of the repository."""
    return yaml.safe_load(ROOT.joinpath(*path).read_text())


@pytest.mark.parametrize("role", ROLES)
def test_defaults_equal_the_specification(role: str) -> None:
    options = load("roles", role, "meta", "argument_specs.yml")["argument_specs"]["main"]["options"]
    assert {name: option["default"] for name, option in options.items()} == load(
        "roles", role, "defaults", "main.yml"
    )
    assert all(name.startswith(f"{role}_") for name in options)


@pytest.mark.parametrize("role", ROLES)
def test_every_option_is_explained(role: str) -> None:
    def check(options: dict[str, t.Any]) -> None:
        for name, option in options.items():
            text = " ".join(
                [option["description"]] if isinstance(option["description"], str) else option["description"]
            )
            assert text.endswith("."), name
            assert option["type"], name
            check(option.get("options", {}))

    for entry_point in load("roles", role, "meta", "argument_specs.yml")["argument_specs"].values():
        check(entry_point["options"])


@pytest.mark.parametrize("role", ROLES)
def test_every_option_is_used(role: str) -> None:
    # Options of the whole site are read by its model, those of remote things by their kinds,
    # and some by the action of an operation.
    model = ROOT / "plugins" / "plugin_utils" / "assembly" / "build.py"
    remote = (ROOT / "plugins" / "plugin_utils" / "remote_kinds").glob("*.py")
    policy = ROOT / "ironspan" / "cli" / "gpu.py"
    actions = (ROOT / "plugins" / "action").glob("*.py")
    files = [
        policy,
        *actions,
        *(ROOT / "roles").rglob("*.j2"),
        *(ROOT / "playbooks").glob("*.yml"),
        model,
        *remote,
    ]
    sources = [path.read_text() for path in files]
    for name in load("roles", role, "defaults", "main.yml"):
        assert any(re.search(rf"\b{name}\b", text) for text in sources), name


@pytest.mark.parametrize("role", ROLES)
def test_a_role_is_one_task(role: str) -> None:
    (task,) = load("roles", role, "tasks", "main.yml")
    assert task["ironspan.hybrid.converge"] == {"layers": [role]}


def test_site_goes_through_the_phases() -> None:
    plays = load("playbooks", "site.yml")
    assert [play["ansible.builtin.import_playbook"] for play in plays] == [f"{phase}.yml" for phase in PHASES]
    for play, phase in zip(plays, PHASES, strict=True):
        scope = play.get("vars", {}).get("__ironspan_scope")
        assert scope in (SCOPED.get(phase), f":&{RETIRED_GROUP}")
    # Before API servers are pointed to it, and after they have been pointed away.
    first, second = (number for number, phase in enumerate(PHASES) if phase == "etcd_events")
    assert first < PHASES.index("control_plane") < second
    assert plays[first]["vars"]["__ironspan_scope"] == SCOPED["etcd_events"]


def test_the_groups_that_phases_take_are_made() -> None:
    layers = {scope.partition("__ironspan_pending_")[2] for scope in SCOPED.values()} - {""}
    assert layers == set(all_layers().pending)


@pytest.mark.parametrize("phase", SCOPED)
def test_a_phase_leaves_out_hosts_with_nothing_to_do_and_works_alone(phase: str) -> None:
    for play in load("playbooks", f"{phase}.yml"):
        if play["hosts"] not in ON_THE_CONTROLLER:
            assert "{{ __ironspan_scope | default('') }}" in play["hosts"]


@pytest.mark.parametrize("phase", PHASES)
def test_nothing_of_a_play_is_skipped_or_gathered(phase: str) -> None:
    for play in load("playbooks", f"{phase}.yml"):
        assert play["gather_facts"] is False
        if play["hosts"] not in ON_THE_CONTROLLER:
            assert not any("when" in task for task in play["tasks"])


def tasks_on_workers() -> list[dict[str, t.Any]]:
    """Return the tasks that run for every worker in a run of site.yml."""
    return [
        task
        for phase in ("assess", "prepare", "nodes")
        for play in load("playbooks", f"{phase}.yml")
        if play["hosts"] not in ON_THE_CONTROLLER
        for task in play["tasks"]
    ]


def test_a_worker_is_contacted_three_times() -> None:
    tasks = tasks_on_workers()
    assert len(tasks) <= 10
    assert len([task for task in tasks if "ironspan.hybrid.converge" in task]) == 3


def test_reset_insists_on_consent_before_it_contacts_a_host() -> None:
    plays = load("playbooks", "reset.yml")
    assert plays[0]["hosts"] == CONTROLLER
    (consent,) = [task for task in plays[0]["tasks"] if "ansible.builtin.assert" in task]
    assert "ironspan_reset_site" in consent["ansible.builtin.assert"]["that"]
    assert all(play["hosts"] != CONTROLLER for play in plays[1:])


def test_reset_hands_the_consent_to_every_host() -> None:
    converging = [
        task["ironspan.hybrid.converge"]
        for play in load("playbooks", "reset.yml")
        for task in play["tasks"]
        if "ironspan.hybrid.converge" in task
    ]
    assert len(converging) == 2
    wanted = {"mode": "reset", "consent": "{{ lookup('ironspan.hybrid.argument', 'ironspan_reset_site') }}"}
    assert all(arguments == wanted for arguments in converging)
