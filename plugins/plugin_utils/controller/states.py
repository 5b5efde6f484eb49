# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""States of a controller's objects: as the site wants them, and as the API has them, in the same form.

A state is shown in a plan and signed, so no secret is in it: of one that there is, its name is. Dictionaries
with free keys are kept as lines of JSON, which read well in a diff.
"""

from __future__ import annotations

import json
import typing as t
from collections.abc import Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.rendered import Rendered
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.shapes import (
    RIGHTS,
    SHAPES,
    Shape,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.values import Secret

Content = Mapping[str, t.Any]
State = dict[str, t.Any]
ENCRYPTED = "$encrypted$"
"""What a controller shows in the place of a secret, and takes for the one that it has."""
ENVIRONMENT, SECRETS = "environment", "secrets"
_WITH_SECRETS = ("inputs", "notification_configuration")
_TARGETS: t.Final = {
    "job_templates": "job template",
    "workflows": "workflow",
    "organizations": "organization",
}
_RESOURCES: t.Final = {
    "job_template": "job template",
    "workflow_job_template": "workflow",
    "organization": "organization",
}
_ROLES: t.Final = {"approve": "approval"}
"""Roles that a controller shows by another name than that of their field."""
LINKS = ("success_nodes", "failure_nodes", "always_nodes")


def lines_of(value: t.Any) -> list[str]:
    """Return a dictionary as lines of JSON, the same for equal ones."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False).splitlines()


def value_of_lines(lines: list[str]) -> t.Any:
    """Return what ``lines_of`` was given."""
    return json.loads("\n".join(lines))


def wanted_states(made: Rendered) -> dict[str, State]:
    """Return all objects of a rendered configuration, by kind and name, in the order to make them."""
    found: dict[str, State] = {}
    for shape in SHAPES:
        for entry in made[shape.variable]:
            found[f"{shape.kind} {entry['name']}"] = _wanted(shape, entry)
    rights: dict[str, set[str]] = {}
    for entry in made["controller_roles"]:
        for team in entry["teams"]:
            rights.setdefault(team, set()).update(_granted(entry))
    return {
        **found,
        **{
            f"{RIGHTS} {team}": {"object": RIGHTS, "name": team, "rights": sorted(rights[team])}
            for team in rights
        },
    }


def _granted(entry: Content) -> Iterator[str]:
    for field, kind in _TARGETS.items():
        yield from (f"{entry['role']}: {kind} {name}" for name in entry.get(field, ()))


def _wanted(shape: Shape, entry: Content) -> State:
    state: State = {"object": shape.kind, "name": entry["name"]}
    for field in (*shape.fields, *shape.texts):
        if field in entry:
            state.update(_field(field, entry[field]))
    for field in shape.references:
        if entry.get(field):
            state[f"{field}_name"] = entry[field]
    for field in shape.lists:
        if field in entry:
            state[field] = _ordered(field, entry[field])
    if "survey_spec" in entry:
        state["survey"] = lines_of(entry["survey_spec"])
    if "simplified_workflow_nodes" in entry:
        nodes = [_wanted_node(node) for node in entry["simplified_workflow_nodes"]]
        state["nodes"] = lines_of(sorted(nodes, key=lambda node: str(node["identifier"])))
    return state


def _ordered(field: str, names: t.Iterable[str]) -> list[str]:
    # The first instance group that has room runs the job.
    return list(names) if field == "instance_groups" else sorted(names)


def _field(field: str, value: t.Any) -> State:
    if field not in _WITH_SECRETS or not isinstance(value, Mapping):
        return {field: lines_of(value) if isinstance(value, Mapping) else value}
    secrets = {key: str(inner) for key, inner in value.items() if isinstance(inner, Secret)}
    plain = {key: inner for key, inner in value.items() if key not in secrets}
    made: State = {field: lines_of(plain)}
    if secrets:
        made[SECRETS] = sorted(secrets)
        made[ENVIRONMENT] = [f"{key}={name}" for key, name in sorted(secrets.items())]
    return made


def _wanted_node(node: Content) -> State:
    made: State = {
        "identifier": node["identifier"],
        "runs": node.get("unified_job_template", ""),
        "approval": node.get("approval_node") or {},
        "extra_data": node.get("extra_data") or {},
    }
    return {**made, **{link: sorted(node.get(link, ())) for link in LINKS}}


def found_state(
    shape: Shape, wanted: Content, there: Content, survey: Content | None, nodes: list[State] | None
) -> State:
    """Return an object of the API in the form of what is wanted of it; what nobody wants is not compared.

    Args:
        shape: of its kind.
        wanted: its state as it is wanted.
        there: as the API has it, with ``summary_fields``; associated objects by name under their fields.
        survey: of it; None where none was asked for.
        nodes: of a workflow, as ``found_nodes`` returns them.
    """
    state: State = {"object": shape.kind, "name": there["name"]}
    for field in (*shape.fields, *shape.texts):
        if field in wanted:
            state.update(_found_field(field, there.get(field), wanted))
    summary = there.get("summary_fields") or {}
    for field in shape.references:
        if f"{field}_name" in wanted:
            state[f"{field}_name"] = (summary.get(field) or {}).get("name", "")
    for field in shape.lists:
        if field in wanted:
            state[field] = _ordered(field, there[field])
    if "survey" in wanted:
        state["survey"] = lines_of(survey or {})
    if "nodes" in wanted:
        state["nodes"] = lines_of(sorted(nodes or [], key=lambda node: str(node["identifier"])))
    return state


def _found_field(field: str, value: t.Any, wanted: Content) -> State:
    if not isinstance(wanted[field], list):
        return {field: "" if value is None else value}
    parsed = json.loads(value) if isinstance(value, str) and value.strip() else value
    parsed = parsed or {}
    if field not in _WITH_SECRETS or not isinstance(parsed, Mapping):
        return {field: lines_of(parsed)}
    secrets = sorted(key for key, inner in parsed.items() if inner == ENCRYPTED)
    made: State = {field: lines_of({key: parsed[key] for key in parsed if key not in secrets})}
    return {**made, **({SECRETS: secrets} if SECRETS in wanted else {})}


def found_nodes(nodes: list[Content], approvals: Mapping[int, Content]) -> list[State]:
    """Return the nodes of a workflow in the form of what is wanted of them.

    Args:
        nodes: as the API has them.
        approvals: approval templates by their number.
    """
    words = {node["id"]: node["identifier"] for node in nodes}
    made = []
    for node in nodes:
        approval = approvals.get(node["unified_job_template"] or 0)
        template = ((node.get("summary_fields") or {}).get("unified_job_template") or {}).get("name", "")
        made.append(
            {
                "identifier": node["identifier"],
                "runs": "" if approval else template,
                "approval": {key: approval[key] for key in ("name", "description", "timeout")}
                if approval
                else {},
                "extra_data": node.get("extra_data") or {},
                **{link: sorted(words[number] for number in node[link]) for link in LINKS},
            }
        )
    return made


def rights_of(roles: t.Iterable[Content]) -> list[str]:
    """Return the roles of a team, as the API lists them, in the form of what is wanted."""
    made = set()
    for role in roles:
        summary = role.get("summary_fields") or {}
        kind = _RESOURCES.get(str(summary.get("resource_type", "")))
        if kind:
            name = str(role["name"]).lower()
            made.add(f"{_ROLES.get(name, name)}: {kind} {summary['resource_name']}")
    return sorted(made)


def differing(wanted: Content, found: Content) -> list[str]:
    """Return the fields in which an object differs from what is wanted."""
    return [key for key in wanted if key != ENVIRONMENT and wanted[key] != found.get(key)]
