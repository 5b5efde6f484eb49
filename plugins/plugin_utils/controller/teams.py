# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Teams and what they may: nobody both launches and approves.

AWX lets whoever launched a workflow approve it, too, if a role of his says so. So no team has both roles,
nobody should be in both teams, and a guard behind each approval compares the two people.
"""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller import events, templates, workflows
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.settings import Settings
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.templates import CHECK

Content = dict[str, t.Any]
OPERATORS, APPROVERS, AUDITORS, BREAK_GLASS = "operators", "approvers", "auditors", "break-glass"
EVENTS = "events"
_ABOUT: t.Final = {
    OPERATORS: "Launch what needs no approval, checks, and workflows. Approve nothing.",
    APPROVERS: "Approve or deny what workflows ask. Launch nothing.",
    AUDITORS: "See everything of the organization. Launch and approve nothing.",
    BREAK_GLASS: "Launch everything without an approval, also what cannot be undone. Approve nothing. "
    "Nobody is in it in daily use.",
    EVENTS: "The account of the program that acts on alerts. Launch what alerts launch, and nothing else.",
}


def teams(settings: Settings) -> list[Content]:
    """Return the teams; who is in them is the site's matter, or its directory's."""
    return [
        {"name": settings.name(name), "description": text, "organization": settings.organization}
        for name, text in _ABOUT.items()
    ]


def roles(settings: Settings) -> list[Content]:
    """Return what each team may, without any right that it does not need."""
    launched = [settings.name(workflow.name) for workflow in workflows.workflows()]
    everything = [entry["name"] for entry in templates.job_templates(settings)]
    by_alerts: dict[str, list[str]] = {events.JOB: [], events.WORKFLOW: []}
    for kind, name in events.launched(settings):
        by_alerts[kind].append(name)
    return [
        {**_team(settings, OPERATORS), "role": "execute", "job_templates": for_operators(settings)},
        {**_team(settings, OPERATORS), "role": "execute", "workflows": sorted(launched)},
        {**_team(settings, APPROVERS), "role": "approval", "workflows": sorted(launched)},
        {**_team(settings, APPROVERS), "role": "read", "job_templates": everything},
        {**_team(settings, AUDITORS), "role": "auditor", "organizations": [settings.organization]},
        {**_team(settings, BREAK_GLASS), "role": "execute", "job_templates": everything},
        {**_team(settings, EVENTS), "role": "execute", "job_templates": by_alerts[events.JOB]},
        {**_team(settings, EVENTS), "role": "execute", "workflows": by_alerts[events.WORKFLOW]},
    ]


def for_operators(settings: Settings) -> list[str]:
    """Return the templates that operators launch by themselves: those that need no approval, and checks."""
    found = []
    for operation in templates.offered():
        if not operation.approved:
            found.append(settings.name(operation.name))
        if operation.changes and operation.check_mode:
            found.append(settings.name(operation.name, CHECK))
    return sorted(found)


def _team(settings: Settings, name: str) -> Content:
    return {"teams": [settings.name(name)], "lookup_organization": settings.organization}
