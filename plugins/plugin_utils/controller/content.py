# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What templates stand on: organization, project, environment, inventories, notifications, schedules."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.settings import Settings
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.values import Secret

Content = dict[str, t.Any]
EVENTS: t.Final = ("started", "success", "error", "approvals")
WORKERS = "nodes"
UPDATED_S = 60
"""What was read as many seconds ago is not read again for the next job of a workflow."""
DEFAULT_SCHEDULES: t.Final[tuple[Content, ...]] = (
    {
        "operation": "doctor",
        "rrule": "DTSTART;TZID=UTC:20260101T001500 RRULE:FREQ=HOURLY;INTERVAL=6",
        "answers": {},
    },
    {
        "operation": "certs",
        "rrule": "DTSTART;TZID=UTC:20260101T053000 RRULE:FREQ=DAILY;INTERVAL=1",
        "answers": {"ironspan_fail_when_due": "true"},
    },
    {
        "operation": "backup_drill",
        "rrule": "DTSTART;TZID=UTC:20260104T030000 RRULE:FREQ=WEEKLY;INTERVAL=1;BYDAY=SU",
        "answers": {},
    },
    {
        # A few at a time, while nobody works with them. A site without GPUs has nobody to ask.
        "operation": "gpu_preflight",
        "rrule": "DTSTART;TZID=UTC:20260101T003000 RRULE:FREQ=HOURLY;INTERVAL=1",
        "answers": {},
    },
)
"""What every site has on a schedule, where ``awx_schedules`` does not say otherwise of the same operation."""


def organizations(settings: Settings) -> list[Content]:
    """Return the organization; its notifications hold for all jobs in it, those of approvals too."""
    made: Content = {"name": settings.organization, "description": "GPU clusters, run by ironspan."}
    for event in EVENTS:
        names = [
            settings.name(str(entry["name"]))
            for entry in settings.notifications
            if event in (entry.get("events") or ())
        ]
        made[f"notification_templates_{event}"] = names
    return [made]


def execution_environments(settings: Settings) -> list[Content]:
    """Return the execution environment, none where the controller's own is used."""
    image = settings.execution_environment_image
    if not image:
        return []
    return [
        {
            "name": settings.name("environment"),
            "description": "What jobs run in.",
            "image": image,
            "organization": settings.organization,
            "pull": "missing",
        }
    ]


def projects(settings: Settings) -> list[Content]:
    """Return the project: the repository with playbooks and inventory."""
    made: Content = {
        "name": settings.name("project"),
        "description": "Playbooks, roles and the inventory.",
        "organization": settings.organization,
        "scm_type": "git",
        "scm_url": settings.project_url,
        "scm_branch": settings.project_branch,
        "scm_clean": True,
        "scm_update_on_launch": True,
        "scm_update_cache_timeout": UPDATED_S,
        "allow_override": False,
    }
    if settings.project_credential:
        made["credential"] = settings.project_credential
    if settings.project_signature_credential:
        made["signature_validation_credential"] = settings.project_signature_credential
    return [made]


def inventories(settings: Settings) -> list[Content]:
    """Return the inventory of the site, and one of its workers alone for jobs in slices."""
    return [
        {
            "name": settings.name("site"),
            "description": "The whole site, read from the project.",
            "organization": settings.organization,
            "kind": "",
        },
        {
            "name": settings.name("workers"),
            "description": "The workers alone, for jobs in slices.",
            "organization": settings.organization,
            "kind": "constructed",
            "input_inventories": [settings.name("site")],
        },
    ]


def inventory_sources(settings: Settings) -> list[Content]:
    """Return where inventories come from. The controller makes that of the workers by itself."""
    return [
        {
            "name": settings.name("inventory"),
            "description": "The inventory in the project.",
            "inventory": settings.name("site"),
            "organization": settings.organization,
            "source": "scm",
            "source_project": settings.name("project"),
            "source_path": settings.inventory_path,
            "overwrite": True,
            "overwrite_vars": True,
            "update_on_launch": True,
            "update_cache_timeout": UPDATED_S,
        },
        {
            "name": f"Auto-created source for: {settings.name('workers')}",
            "inventory": settings.name("workers"),
            "organization": settings.organization,
            "limit": WORKERS,
            "update_on_launch": True,
            "update_cache_timeout": UPDATED_S,
        },
    ]


def notifications(settings: Settings) -> list[Content]:
    """Return the notification templates of the site."""
    return [
        {
            "name": settings.name(str(entry["name"])),
            "description": f"To {entry['type']}.",
            "organization": settings.organization,
            "notification_type": entry["type"],
            "notification_configuration": _configured(entry),
        }
        for entry in settings.notifications
    ]


def _configured(entry: t.Mapping[str, t.Any]) -> Content:
    secret = Secret(entry["secret_variable"]) if entry.get("secret_variable") else ""
    if entry["type"] == "slack":
        return {"token": secret, "channels": list(entry["channels"]), "hex_color": ""}
    if entry["type"] == "pagerduty":
        return {
            "token": secret,
            "service_key": Secret(entry["service_key_variable"]),
            "subdomain": entry["subdomain"],
            "client_name": "ironspan",
        }
    return {
        "url": entry["url"],
        "http_method": "POST",
        "headers": {},
        "username": entry.get("username") or "",
        "password": secret,
        "disable_ssl_verification": False,
    }


def schedules(settings: Settings) -> list[Content]:
    """Return the schedules: those of every site, and what this one says of the same or other operations."""
    said = {str(entry["operation"]): entry for entry in settings.schedules}
    usual = {str(entry["operation"]): entry for entry in DEFAULT_SCHEDULES}
    chosen = {**usual, **said}
    return [
        {
            "name": settings.name(operation, "schedule"),
            "description": f"Runs {settings.name(operation)} by itself.",
            "unified_job_template": settings.name(operation),
            "organization": settings.organization,
            "rrule": entry["rrule"],
            "enabled": bool(entry.get("enabled", True)),
            "extra_data": dict(entry.get("answers") or {}),
        }
        for operation, entry in sorted(chosen.items())
    ]
