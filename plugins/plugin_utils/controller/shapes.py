# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How each kind of object is kept by a controller: where it lies, which fields it has, what it refers to."""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One kind of object.

    Args:
        kind: what people call it.
        variable: of the rendered configuration.
        path: of its list in the API.
        fields: that are compared and written as they are.
        texts: fields that are dictionaries here and JSON in a text there.
        references: field to the kind of the object that it names.
        lists: field to the kind of the objects that are associated, by the sublist of the field's name.
        within: the query that finds those of an organization; "" for kinds without one.
        removed: whether ironspan removes one that nobody wants any more.
    """

    kind: str
    variable: str
    path: str
    fields: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    references: Mapping[str, str] = dataclasses.field(default_factory=dict)
    lists: Mapping[str, str] = dataclasses.field(default_factory=dict)
    within: str = "organization__name"
    removed: bool = True


_ORGANIZATION = {"organization": "organization"}
_EVENTS = {
    f"notification_templates_{event}": "notification"
    for event in ("started", "success", "error", "approvals")
}

SHAPES: t.Final[tuple[Shape, ...]] = (
    Shape(
        kind="organization",
        variable="controller_organizations",
        path="organizations",
        fields=("description",),
        within="name",
        removed=False,
    ),
    Shape(
        kind="team",
        variable="controller_teams",
        path="teams",
        fields=("description",),
        references=_ORGANIZATION,
    ),
    Shape(
        kind="label",
        variable="controller_labels",
        path="labels",
        references=_ORGANIZATION,
        # A controller removes those that nothing has any more by itself, and lets nobody else do it.
        removed=False,
    ),
    Shape(
        kind="credential type",
        variable="controller_credential_types",
        path="credential_types",
        fields=("description", "kind", "inputs", "injectors"),
        within="",
    ),
    Shape(
        kind="credential",
        variable="controller_credentials",
        path="credentials",
        fields=("description", "inputs"),
        references={**_ORGANIZATION, "credential_type": "credential type"},
    ),
    Shape(
        kind="environment",
        variable="controller_execution_environments",
        path="execution_environments",
        fields=("description", "image", "pull"),
        references=_ORGANIZATION,
    ),
    Shape(
        kind="notification",
        variable="controller_notifications",
        path="notification_templates",
        fields=("description", "notification_type", "notification_configuration"),
        references=_ORGANIZATION,
    ),
    Shape(
        kind="notifications of",
        variable="controller_organizations",
        path="organizations",
        lists=_EVENTS,
        within="name",
        removed=False,
    ),
    Shape(
        kind="project",
        variable="controller_projects",
        path="projects",
        fields=(
            "description", "scm_type", "scm_url", "scm_branch", "scm_clean", "scm_update_on_launch",
            "scm_update_cache_timeout", "allow_override",
        ),
        references={
            **_ORGANIZATION,
            "credential": "credential",
            "signature_validation_credential": "credential",
        },
    ),
    Shape(
        kind="inventory",
        variable="controller_inventories",
        path="inventories",
        fields=("description", "kind"),
        references=_ORGANIZATION,
        lists={"input_inventories": "inventory"},
    ),
    Shape(
        kind="inventory source",
        variable="controller_inventory_sources",
        path="inventory_sources",
        fields=(
            "description", "source", "source_path", "overwrite", "overwrite_vars", "update_on_launch",
            "update_cache_timeout", "limit",
        ),
        references={"inventory": "inventory", "source_project": "project"},
        within="inventory__organization__name",
        # It goes with its inventory.
        removed=False,
    ),
    Shape(
        kind="job template",
        variable="controller_templates",
        path="job_templates",
        fields=(
            "description", "playbook", "job_type", "limit", "timeout", "allow_simultaneous",
            "job_slice_count", "diff_mode", "webhook_service", "survey_enabled", "ask_variables_on_launch",
            "ask_limit_on_launch",
            "ask_inventory_on_launch", "ask_job_type_on_launch", "ask_job_slice_count_on_launch",
            "ask_credential_on_launch", "ask_execution_environment_on_launch",
        ),
        texts=("extra_vars",),
        references={
            "project": "project",
            "inventory": "inventory",
            "execution_environment": "environment",
        },
        lists={"credentials": "credential", "labels": "label", "instance_groups": "instance group"},
    ),
    Shape(
        kind="workflow",
        variable="controller_workflows",
        path="workflow_job_templates",
        fields=(
            "description", "allow_simultaneous", "survey_enabled", "ask_variables_on_launch",
            "ask_limit_on_launch", "ask_inventory_on_launch",
        ),
        texts=("extra_vars",),
        references=_ORGANIZATION,
        lists={"labels": "label"},
    ),
    Shape(
        kind="schedule",
        variable="controller_schedules",
        path="schedules",
        fields=("description", "rrule", "enabled", "extra_data"),
        references={"unified_job_template": "template"},
        within="unified_job_template__organization__name",
    ),
)  # fmt: skip
"""All kinds, in the order in which they are made."""

BY_KIND: t.Final[Mapping[str, Shape]] = {shape.kind: shape for shape in SHAPES}
OTHERS: t.Final[Mapping[str, str]] = {
    "instance group": "instance_groups",
    "template": "unified_job_templates",
}
"""What is referred to and never written: kind to the path of its list."""
RIGHTS = "rights of"
"""The kind of what a team may: a list of roles, which has no object of its own."""


def path_of(kind: str) -> str:
    """Return the path of the list of a kind."""
    return BY_KIND[kind].path if kind in BY_KIND else OTHERS[kind]
