# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What each kind of object of the stand-in has: fields with their types, references, associations."""

from __future__ import annotations

import dataclasses
import typing as t

REQUIRED: t.Final = object()
"""The default of a field that has none."""


@dataclasses.dataclass(frozen=True)
class Kind:
    """One kind.

    Args:
        type: as the API calls one object.
        words: as messages call it.
        fields: name to default; the type of a value is that of its default.
        references: field to the path of the kind that it names by number.
        lists: name of a sublist to the path of the kind that is associated.
        unique: fields that no two objects share.
        roles: of RBAC.
        choices: values of fields that have few.
        fixed: fields that are not changed by a PATCH.
    """

    type: str
    words: str
    fields: dict[str, t.Any]
    references: dict[str, str] = dataclasses.field(default_factory=dict)
    lists: dict[str, str] = dataclasses.field(default_factory=dict)
    unique: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    choices: dict[str, tuple[t.Any, ...]] = dataclasses.field(default_factory=dict)
    fixed: tuple[str, ...] = ()


_NAMED = {"name": REQUIRED, "description": ""}
_ORG = {"organization": "organizations"}
_EVENTS = {
    f"notification_templates_{event}": "notification_templates" for event in ("started", "success", "error")
}
_APPROVALS = {**_EVENTS, "notification_templates_approvals": "notification_templates"}
_PROMPTS = {
    f"ask_{name}_on_launch": False
    for name in (
        "scm_branch", "diff_mode", "variables", "limit", "tags", "skip_tags", "job_type", "verbosity",
        "inventory",
        "credential", "execution_environment", "labels", "forks", "job_slice_count", "timeout",
        "instance_groups",
    )
}  # fmt: skip
_SOURCES = ("file", "constructed", "scm", "ec2", "gce", "azure_rm", "")

KINDS: t.Final[dict[str, Kind]] = {
    "organizations": Kind(
        "organization", "Organization", {**_NAMED, "max_hosts": 0, "default_environment": None},
        {"default_environment": "execution_environments"},
        {**_APPROVALS, "instance_groups": "instance_groups", "galaxy_credentials": "credentials"},
        ("name",),
        ("admin_role", "execute_role", "approval_role", "auditor_role", "member_role", "read_role"),
    ),
    "users": Kind(
        "user", "User",
        {"username": REQUIRED, "first_name": "", "last_name": "", "email": "", "is_superuser": False,
         "is_system_auditor": False, "password": ""},
        unique=("username",),
    ),
    "teams": Kind(
        "team", "Team", {**_NAMED, "organization": REQUIRED}, _ORG, unique=("organization", "name"),
        roles=("admin_role", "member_role", "read_role"),
    ),
    "labels": Kind("label", "Label", {"name": REQUIRED, "organization": REQUIRED}, _ORG, unique=("name",
    "organization")),
    "instance_groups": Kind("instance_group", "Instance group", {"name": REQUIRED}, unique=("name",)),
    "credential_types": Kind(
        "credential_type", "Credential type",
        {**_NAMED, "kind": REQUIRED, "inputs": {}, "injectors": {}, "managed": False, "namespace": ""},
        unique=("name", "kind"), choices={"kind": ("cloud", "net", "ssh", "scm", "cryptography")},
    ),
    "credentials": Kind(
        "credential", "Credential", {**_NAMED, "organization": None, "credential_type": REQUIRED,
        "inputs": {}},
        {**_ORG, "credential_type": "credential_types"}, unique=("organization", "name", "credential_type"),
        roles=("admin_role", "use_role", "read_role"),
    ),
    "execution_environments": Kind(
        "execution_environment", "Execution environment",
        {**_NAMED, "organization": None, "image": REQUIRED, "credential": None, "pull": ""},
        {**_ORG, "credential": "credentials"}, unique=("name",),
        choices={"pull": ("always", "missing", "never", "")},
    ),
    "notification_templates": Kind(
        "notification_template", "Notification template",
        {**_NAMED, "organization": REQUIRED, "notification_type": REQUIRED, "notification_configuration": {},
         "messages": None},
        _ORG, unique=("organization", "name"),
        choices={"notification_type": ("email", "slack", "pagerduty", "webhook", "grafana")},
    ),
    "projects": Kind(
        "project", "Project",
        {**_NAMED, "organization": None, "scm_type": "", "scm_url": "", "scm_branch": "",
        "scm_refspec": "", "scm_revision": "",
         "scm_clean": False, "scm_delete_on_update": False, "scm_track_submodules": False, "credential": None,
         "signature_validation_credential": None, "timeout": 0, "scm_update_on_launch": False,
         "scm_update_cache_timeout": 0, "allow_override": False, "default_environment": None,
         "status": "pending"},
        {**_ORG, "credential": "credentials", "signature_validation_credential": "credentials",
         "default_environment": "execution_environments"},
        unique=("organization", "name"), roles=("admin_role", "use_role", "update_role", "read_role"),
        choices={"scm_type": ("", "git", "svn", "insights", "archive")},
    ),
    "inventories": Kind(
        "inventory", "Inventory",
        {**_NAMED, "organization": REQUIRED, "kind": "", "host_filter": None, "variables": "",
         "prevent_instance_group_fallback": False},
        _ORG, {"input_inventories": "inventories", "instance_groups": "instance_groups"},
        ("organization", "name"), ("admin_role", "use_role", "adhoc_role", "update_role", "read_role"),
        {"kind": ("", "smart", "constructed")}, ("kind",),
    ),
    "inventory_sources": Kind(
        "inventory_source", "Inventory source",
        {**_NAMED, "inventory": REQUIRED, "source": REQUIRED, "source_path": "", "source_project": None,
         "source_vars": "", "overwrite": False, "overwrite_vars": False, "update_on_launch": False,
         "update_cache_timeout": 0, "limit": "", "verbosity": 1, "timeout": 0, "enabled_var": "",
         "enabled_value": "", "host_filter": ""},
        {"inventory": "inventories", "source_project": "projects"}, unique=("inventory", "name"),
        choices={"source": _SOURCES},
    ),
    "job_templates": Kind(
        "job_template", "Job Template",
        {**_NAMED, "job_type": "run", "inventory": None, "project": None, "playbook": "", "scm_branch": "",
         "forks": 0, "limit": "", "verbosity": 0, "extra_vars": "", "job_tags": "", "skip_tags": "",
         "timeout": 0,
         "use_fact_cache": False, "execution_environment": None, "survey_enabled": False,
         "become_enabled": False,
         "diff_mode": False, "allow_simultaneous": False, "job_slice_count": 1, "webhook_service": "",
         "prevent_instance_group_fallback": False, "organization": None, **_PROMPTS},
        {"inventory": "inventories", "project": "projects", "execution_environment": "execution_environments",
         **_ORG},
        {"credentials": "credentials", "labels": "labels", "instance_groups": "instance_groups", **_EVENTS},
        ("organization", "name"), ("admin_role", "execute_role", "read_role"),
        {"job_type": ("run", "check")},
    ),
    "workflow_job_templates": Kind(
        "workflow_job_template", "Workflow Job Template",
        {**_NAMED, "organization": None, "inventory": None, "limit": None, "scm_branch": None,
        "extra_vars": "",
         "job_tags": None, "skip_tags": None, "survey_enabled": False, "allow_simultaneous": False,
         "webhook_service": "",
         **{name: _PROMPTS[name] for name in _PROMPTS if name[4:].split("_on_")[0] in (
             "variables", "inventory", "limit", "scm_branch", "labels", "skip_tags", "tags")}},
        {**_ORG, "inventory": "inventories"}, {"labels": "labels", **_APPROVALS}, ("organization", "name"),
        ("admin_role", "execute_role", "approval_role", "read_role"),
    ),
    "workflow_job_template_nodes": Kind(
        "workflow_job_template_node", "Workflow Job Template Node",
        {"identifier": "", "workflow_job_template": REQUIRED, "unified_job_template": None, "extra_data": {},
         "inventory": None, "limit": None, "all_parents_must_converge": False},
        {"workflow_job_template": "workflow_job_templates", "unified_job_template": "unified_job_templates",
         "inventory": "inventories"},
        {f"{way}_nodes": "workflow_job_template_nodes" for way in ("success", "failure", "always")},
        ("identifier", "workflow_job_template"), fixed=("workflow_job_template",),
    ),
    "workflow_approval_templates": Kind(
        "workflow_approval_template", "Workflow Approval Template", {**_NAMED, "timeout": 0,
        "organization": None}, _ORG,
    ),
    "schedules": Kind(
        "schedule", "Schedule",
        {**_NAMED, "rrule": REQUIRED, "enabled": True, "unified_job_template": REQUIRED, "extra_data": {},
         "inventory": None, "limit": None},
        {"unified_job_template": "unified_job_templates", "inventory": "inventories"},
        unique=("unified_job_template", "name"),
    ),
    "jobs": Kind("job", "Job", {"name": "", "status": "new", "organization": None}),
    "workflow_jobs": Kind("workflow_job", "Workflow Job", {"name": "", "status": "new",
    "organization": None}),
    "workflow_job_nodes": Kind("workflow_job_node", "Workflow Job Node", {"identifier": ""}),
    "workflow_approvals": Kind("workflow_approval", "Workflow Approval", {"name": "", "status": "pending"}),
}  # fmt: skip
UNIFIED: t.Final = (
    "job_templates",
    "workflow_job_templates",
    "projects",
    "inventory_sources",
    "workflow_approval_templates",
)
"""They share one sequence of numbers, and can be what a node or a schedule runs."""
RUNS: t.Final = ("jobs", "workflow_jobs", "workflow_approvals")
ROLE_NAMES: t.Final = {
    "admin_role": "Admin", "execute_role": "Execute", "approval_role": "Approve", "auditor_role": "Auditor",
    "member_role": "Member", "read_role": "Read", "use_role": "Use", "update_role": "Update",
    "adhoc_role": "Ad Hoc",
}  # fmt: skip
UNIFIED_TYPES: t.Final = {
    "job_templates": "job", "workflow_job_templates": "workflow_job", "projects": "project_update",
    "inventory_sources": "inventory_update", "workflow_approval_templates": "workflow_approval",
}  # fmt: skip
