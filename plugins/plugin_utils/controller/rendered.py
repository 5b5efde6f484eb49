# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The whole configuration of a controller, and its text."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller import (
    content,
    credentials,
    events,
    teams,
    templates,
    workflows,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.settings import Settings
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.values import Literal, Secret

Content = dict[str, t.Any]
Rendered = dict[str, list[Content]]
_WIDTH = 120
_MADE = (
    "# Written by `ironspan awx render` from the inventory and the operations that there are; do not edit.\n"
)
_HEAD = (
    f"{_MADE}# Data of the roles of infra.controller_configuration. Secrets come from the environment.\n---\n"
)


def rendered(settings: Settings, host: str) -> Rendered:
    """Return the configuration: variable of the community's roles to its list, in the order to load them.

    Args:
        settings: of the site.
        host: URL of the controller, for jobs that read it.
    """
    return {
        "controller_organizations": content.organizations(settings),
        "controller_teams": teams.teams(settings),
        "controller_labels": templates.labels(settings),
        "controller_credential_types": credentials.credential_types(settings),
        "controller_credentials": credentials.credentials(settings, host),
        "controller_execution_environments": content.execution_environments(settings),
        "controller_notifications": content.notifications(settings),
        "controller_projects": content.projects(settings),
        "controller_inventories": content.inventories(settings),
        "controller_inventory_sources": content.inventory_sources(settings),
        "controller_templates": templates.job_templates(settings),
        "controller_workflows": workflows.workflow_templates(settings),
        "controller_schedules": content.schedules(settings),
        "controller_roles": teams.roles(settings),
    }


def files(made: Mapping[str, list[Content]]) -> dict[str, str]:
    """Return the text of each file by its name: one for each variable."""
    return {f"{name}.yml": f"{_HEAD}{_text({name: value})}" for name, value in made.items()}


def event_files(
    settings: Settings, groups: Mapping[str, Sequence[str]], address: str, port: int
) -> dict[str, str]:
    """Return the text of each file about alerts, by its path: rulebook, and Alertmanager's part.

    Args:
        settings: of the site.
        groups: hosts of each group of the inventory that an alert may name.
        address: of the host that takes alerts.
        port: of the program there.
    """
    return {
        "events/rulebook.yml": f"{_MADE}---\n{_text(events.rulebook(settings, groups))}",
        "events/alertmanager.yml": f"{_MADE}---\n{_text(events.receiver(settings, address, port))}",
    }


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: t.Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _secret(dumper: yaml.SafeDumper, data: Secret) -> yaml.Node:
    lookup = f"{{{{ lookup('ansible.builtin.env', '{data}') }}}}"
    return dumper.represent_scalar("tag:yaml.org,2002:str", lookup, style='"')


def _literal(dumper: yaml.SafeDumper, data: Literal) -> yaml.Node:
    return dumper.represent_scalar("!unsafe", str(data), style='"')


_Dumper.add_representer(Secret, _secret)
_Dumper.add_representer(Literal, _literal)


def _text(value: Content | list[Content]) -> str:
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=_WIDTH, allow_unicode=True))
