# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The configuration of a controller: what templates ask, what workflows do, who launches and approves."""

from __future__ import annotations

import itertools
import json
import pathlib
import re
import typing as t

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils import catalogue
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import Operation
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller import (
    rendered,
    teams,
    templates,
    workflows,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.approval import fault_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.rrule import (
    fault_of as fault_of_rrule,
)

from tests.support.controller_site import configuration, settings
from tests.support.playbooks import ROOT
from tests.unit.operations.test_survey import refused_by_awx

Content = dict[str, t.Any]
MADE = configuration()
TEMPLATES = {entry["name"]: entry for entry in MADE["controller_templates"]}
WORKFLOWS = {entry["name"]: entry for entry in MADE["controller_workflows"]}
CONSENT = "ironspan_allow_destructive"
SIX = ("change", "rack", "repair", "upgrade", "restore", "authority")


def operation_of(template: Content) -> Operation:
    return catalogue.OPERATIONS[pathlib.PurePath(template["playbook"]).stem]


def test_there_are_templates_workflows_and_names_of_their_own() -> None:
    assert len(TEMPLATES) >= 30
    assert {f"ironspan {name} workflow" for name in SIX} <= set(WORKFLOWS)
    names = [entry["name"] for entry in (*MADE["controller_templates"], *MADE["controller_workflows"])]
    assert len(names) == len(set(names))
    # A name with ++ is read as a path by the API.
    assert not any("+" in name for name in names)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_can_be_launched_in_one_way_only(name: str) -> None:
    template = TEMPLATES[name]
    assert (ROOT / template["playbook"]).is_file()
    assert template["allow_simultaneous"] is False
    assert template["timeout"] >= 3600
    assert template["labels"]
    assert {field: template[field] for field in templates.PROMPTS} == dict.fromkeys(templates.PROMPTS, False)
    survey = template["survey_spec"]
    assert template["survey_enabled"] is bool(survey)
    assert not survey or refused_by_awx(survey) == []
    operation = operation_of(template)
    planned = catalogue.OPERATIONS.get(template["extra_vars"].get("ironspan_planned", ""))
    known = {entry.name for each in (operation, planned) if each for entry in each.arguments}
    asked = {question["variable"] for question in survey.get("spec", ())}
    assert asked <= known
    assert set(template["extra_vars"]) <= known
    assert not asked & set(template["extra_vars"])


@pytest.mark.parametrize("name", TEMPLATES)
def test_consent_is_a_question_with_two_answers_and_only_where_nobody_is_asked(name: str) -> None:
    template = TEMPLATES[name]
    questions = [q for q in template["survey_spec"].get("spec", ()) if q["variable"] == CONSENT]
    for question in questions:
        assert (question["type"], question["choices"], question["default"]) == (
            "multiplechoice",
            ["false", "true"],
            "false",
        )
    if questions:
        # Whoever may launch it is outside of daily use.
        assert operation_of(template).consent
        assert name not in teams.for_operators(settings())


@pytest.mark.parametrize("name", [name for name, entry in TEMPLATES.items() if entry["job_type"] == "run"])
def test_what_changes_something_has_a_twin_that_checks(name: str) -> None:
    operation = operation_of(TEMPLATES[name])
    if name == f"ironspan {operation.name.replace('_', ' ')}" and operation.changes and operation.check_mode:
        twin = TEMPLATES[f"{name} (check)"]
        assert twin["job_type"] == "check"
        assert CONSENT not in str(twin["survey_spec"])


def test_an_empty_answer_is_never_all_hosts() -> None:
    for template in TEMPLATES.values():
        operation = operation_of(template)
        for question in template["survey_spec"].get("spec", ()):
            argument = operation.argument(question["variable"])
            if operation.changes and argument and argument.all_when_empty:
                assert question["required"] and question["min"] == 1, template["name"]
    asked = {q["variable"]: q for q in TEMPLATES["ironspan bmc setup"]["survey_spec"]["spec"]}
    assert asked["ironspan_servers"]["required"] is True


def test_what_the_site_answers_is_not_asked() -> None:
    template = TEMPLATES["ironspan bare metal"]
    assert template["extra_vars"] == {"ironspan_expected": "servers/expected.yml"}
    assert "ironspan_expected" not in str(template["survey_spec"])
    # The accounts come from a credential then.
    assert "ironspan_factory" not in str(TEMPLATES["ironspan bmc setup"]["survey_spec"])
    assert "ironspan BMC accounts" in TEMPLATES["ironspan bmc setup"]["credentials"]


# Workflows.


def nodes_of(name: str) -> dict[str, Content]:
    return {node["identifier"]: node for node in WORKFLOWS[name]["simplified_workflow_nodes"]}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_is_whole(name: str) -> None:
    nodes = nodes_of(name)
    led_to = set()
    for node in nodes.values():
        links = [*node.get("success_nodes", ()), *node.get("failure_nodes", ())]
        assert set(links) <= set(nodes)
        led_to.update(links)
        assert ("unified_job_template" in node) != ("approval_node" in node)
        if template := TEMPLATES.get(node.get("unified_job_template", "")):
            asked = {question["variable"] for question in template["survey_spec"].get("spec", ())}
            # A node refuses what its template does not ask.
            assert set(node.get("extra_data", {})) <= asked
        else:
            assert node["approval_node"]["timeout"] == 240 * 60
    (first,) = set(nodes) - led_to
    assert first.startswith("01-")
    assert refused_by_awx(WORKFLOWS[name]["survey_spec"]) == []


@pytest.mark.parametrize("name", WORKFLOWS)
def test_nothing_changes_before_an_approval_and_its_guard(name: str) -> None:
    nodes = nodes_of(name)
    chain = [identifier for identifier in nodes if identifier != "what-is-left"]
    guarded = False
    for before, identifier in itertools.pairwise(["", *chain]):
        node = nodes[identifier]
        if before and "approval_node" in nodes[before]:
            assert node["unified_job_template"] == "ironspan approval guard"
            guarded = True
        if "unified_job_template" not in node:
            continue
        template = TEMPLATES[node["unified_job_template"]]
        if operation_of(template).changes and template["job_type"] == "run":
            assert guarded
            assert node["failure_nodes"] == ["what-is-left"]
    assert guarded


@pytest.mark.parametrize("name", WORKFLOWS)
def test_the_jobs_of_a_workflow_get_the_answers_that_they_need(name: str) -> None:
    asked = {question["variable"] for question in WORKFLOWS[name]["survey_spec"]["spec"]}
    for node in nodes_of(name).values():
        template = TEMPLATES.get(node.get("unified_job_template", ""))
        needed = {
            q["variable"] for q in (template or {}).get("survey_spec", {}).get("spec", ()) if q["required"]
        }
        assert needed <= asked | set(node.get("extra_data", {})), node["identifier"]


def test_a_plan_is_applied_by_the_workflow_that_made_it() -> None:
    for name, workflow in WORKFLOWS.items():
        ran = [
            TEMPLATES[node["unified_job_template"]]
            for node in workflow["simplified_workflow_nodes"]
            if "unified_job_template" in node
        ]
        written = {entry["extra_vars"].get("ironspan_plan_file") for entry in ran} - {None}
        applied = {entry["extra_vars"].get("ironspan_plan") for entry in ran} - {None}
        assert written == applied, name
        files = [entry["extra_vars"].get("ironspan_plan_file") for entry in TEMPLATES.values()]
        assert len({*files} - {None}) == len([file for file in files if file])


@pytest.mark.parametrize(("workers", "slices"), [(0, 1), (1, 1), (250, 1), (251, 2), (1000, 4)])
def test_workers_are_changed_in_slices(workers: int, slices: int) -> None:
    found = {entry["name"]: entry for entry in configuration(workers)["controller_templates"]}
    template = found["ironspan change workers"]
    assert template["job_slice_count"] == slices
    # It sees the workers alone, which is a slice, however many jobs there are.
    assert template["extra_vars"]["ironspan_slice"] is True
    assert template["inventory"] == "ironspan workers"
    others = [entry for entry in found.values() if entry["job_slice_count"] != 1]
    assert others in ([], [template])


# Who may what.


def rights() -> dict[str, set[tuple[str, str]]]:
    """Return role and object of each team, with what a role brings along."""
    found: dict[str, set[tuple[str, str]]] = {}
    brings = {"execute": ("execute", "read"), "approval": ("approval", "read"), "auditor": ("read",)}
    for entry in MADE["controller_roles"]:
        for team in entry["teams"]:
            for role in brings.get(entry["role"], (entry["role"],)):
                for kind in ("job_templates", "workflows", "organizations"):
                    found.setdefault(team, set()).update((role, name) for name in entry.get(kind, ()))
    return found


def test_nobody_launches_and_approves() -> None:
    found = rights()
    assert set(found) == {entry["name"] for entry in MADE["controller_teams"]}
    for team, held in found.items():
        roles = {role for role, _ in held}
        assert roles <= {"execute", "approval", "read"}, team
        assert not {"execute", "approval"} <= roles, team
    assert {role for role, _ in found["ironspan auditors"]} == {"read"}
    launched = {name for role, name in found["ironspan operators"] if role == "execute"}
    assert set(WORKFLOWS) <= launched
    assert {name for role, name in found["ironspan approvers"] if role == "approval"} == set(WORKFLOWS)


def test_operators_launch_nothing_by_themselves_that_needs_an_approval() -> None:
    for name in teams.for_operators(settings()):
        template = TEMPLATES[name]
        assert template["job_type"] == "check" or not operation_of(template).approved, name


def test_what_needs_an_approval_has_a_workflow() -> None:
    asked = {name for workflow in workflows.workflows() for name in workflow.asked}
    needed = {entry.name for entry in templates.offered() if entry.approved}
    assert needed <= asked


def test_schedules_are_of_what_runs_by_itself() -> None:
    made = configuration(
        awx_schedules=[
            {"operation": "verify", "rrule": "DTSTART:20260101T000000Z RRULE:FREQ=DAILY;INTERVAL=1"},
            {"operation": "doctor", "enabled": False,
             "rrule": "DTSTART:20260101T000000Z RRULE:FREQ=DAILY;INTERVAL=2"},
        ]
    )  # fmt: skip
    found = {entry["name"]: entry for entry in made["controller_schedules"]}
    assert sorted(found) == [
        f"ironspan {name} schedule" for name in ("backup drill", "certs", "doctor", "gpu preflight", "verify")
    ]
    assert found["ironspan doctor schedule"]["enabled"] is False
    for entry in found.values():
        template = TEMPLATES[entry["unified_job_template"]]
        assert fault_of_rrule(entry["rrule"]) == ""
        assert set(entry["extra_data"]) <= {q["variable"] for q in template["survey_spec"].get("spec", ())}
        assert not operation_of(template).approved


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("DTSTART;TZID=Europe/Berlin:20260101T020000 RRULE:FREQ=DAILY;INTERVAL=1", ""),
        ("DTSTART:20260101T020000Z RRULE:FREQ=WEEKLY;INTERVAL=1;BYDAY=SU,MO", ""),
        ("DTSTART:20260101T020000Z RRULE:FREQ=DAILY;INTERVAL=1;UNTIL=20270101T000000Z", ""),
        ("DTSTART:20260101T020000 RRULE:FREQ=DAILY;INTERVAL=1", "form"),
        ("every night", "form"),
        ("DTSTART:20260101T020000Z RRULE:FREQ=SECONDLY;INTERVAL=1", "FREQ"),
        ("DTSTART:20260101T020000Z RRULE:FREQ=DAILY", "INTERVAL"),
        ("DTSTART:20260101T020000Z RRULE:FREQ=MONTHLY;INTERVAL=1;BYDAY=1MO", "BYDAY"),
        ("DTSTART:20260101T020000Z RRULE:FREQ=DAILY;INTERVAL=1;COUNT=1000", "COUNT"),
        ("DTSTART:20260101T020000Z RRULE:FREQ=DAILY;INTERVAL=1;COUNT=0", "COUNT"),
        ("DTSTART:20260101T020000Z RRULE:FREQ=DAILY;INTERVAL=1;COUNT=2;UNTIL=20270101T000000Z", "COUNT"),
        ("DTSTART:20260101T020000Z RRULE:FREQ=DAILY;INTERVAL=1;UNTIL=20270101T000000", "UNTIL"),
    ],
)
def test_times_are_those_that_a_controller_keeps(text: str, part: str) -> None:
    fault = fault_of_rrule(text)
    assert part in fault if part else fault == ""


def person(number: int, name: str) -> Content:
    return {"id": number, "username": name}


def approved(*people: Content | None) -> list[Content]:
    return [
        {"status": "successful", "name": "approve", "summary_fields": {"approved_or_denied_by": each or {}}}
        for each in people
    ]


@pytest.mark.parametrize(
    ("launcher", "approvals", "part"),
    [
        (person(1, "ann"), approved(person(2, "bob")), ""),
        (person(1, "ann"), [*approved(person(2, "bob")), {"status": "pending"}], ""),
        (person(1, "ann"), approved(person(1, "ann")), "ann launched this workflow and gave"),
        (person(1, "ann"), approved(person(2, "bob"), person(1, "ann")), "ann launched"),
        (person(1, "ann"), approved(None), "who gave the approval"),
        (person(1, "ann"), [], "no approval"),
        (person(1, "ann"), [{"status": "pending"}], "no approval"),
        ({}, approved(person(2, "bob")), "who launched"),
    ],
)
def test_the_guard_lets_pass_what_somebody_else_approved(
    launcher: Content, approvals: list[Content], part: str
) -> None:
    fault = fault_of({"summary_fields": {"created_by": launcher}}, approvals)
    assert part in fault if part else fault == ""


# Files.


class Loader(yaml.SafeLoader):
    """Reads ``!unsafe`` as Ansible does."""


Loader.add_constructor("!unsafe", lambda loader, node: str(node.value))


def test_files_say_what_was_rendered_and_no_secret() -> None:
    written = rendered.files(MADE)
    assert sorted(written) == sorted(f"{name}.yml" for name in MADE)
    assert written == rendered.files(configuration())
    for name, text in written.items():
        (content,) = yaml.load(text, Loader=Loader).values()
        plain = json.loads(json.dumps(MADE[name.removesuffix(".yml")]))
        if name not in ("controller_credentials.yml", "controller_notifications.yml"):
            assert content == plain
    text = written["controller_credentials.yml"]
    assert text.count("lookup('ansible.builtin.env'") == 4
    for value in re.findall(r"(?:key|token|ssh_key_data|accounts): (.*)", text):
        assert value.startswith("\"{{ lookup('ansible.builtin.env', '")
    assert "!unsafe" in written["controller_credential_types.yml"]
