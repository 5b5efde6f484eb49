# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A site whose controller is configured, and what is rendered of it."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.rendered import Rendered, rendered
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.settings import (
    Settings,
    settings_of,
)

from tests.support.playbooks import ROOT

HOST = "https://awx.example.com"
SITE: t.Final[dict[str, t.Any]] = {
    "awx_host": HOST,
    "awx_project_url": "https://git.example.com/site.git",
    "awx_execution_environment_image": "registry.example.com/ironspan:1",
    "awx_bmc_accounts": True,
    "awx_azure_tenant_id": "11111111-1111-1111-1111-111111111111",
    "awx_azure_client_id": "22222222-2222-2222-2222-222222222222",
    "awx_answers": {"ironspan_expected": "servers/expected.yml"},
    "awx_notifications": [
        {"name": "hook", "type": "webhook", "events": ["error", "approvals"], "url": "https://hook.example.com"},
        {
            "name": "chat", "type": "slack", "events": ["success"], "channels": ["ops"],
            "secret_variable": "SLACK_TOKEN",
        },
        {
            "name": "pager", "type": "pagerduty", "events": ["error"], "subdomain": "acme",
            "secret_variable": "PAGER_TOKEN", "service_key_variable": "PAGER_KEY",
        },
    ],
}  # fmt: skip


def variables_of(**more: t.Any) -> dict[str, t.Any]:
    """Return the variables of such a site, with all defaults of the role."""
    import yaml

    defaults = yaml.safe_load((ROOT / "roles" / "awx" / "defaults" / "main.yml").read_text())
    return {**defaults, **SITE, **more}


def settings(workers: int = 600, **more: t.Any) -> Settings:
    """Return its settings."""
    return settings_of(variables_of(**more), workers)


def configuration(workers: int = 600, **more: t.Any) -> Rendered:
    """Return what is rendered of it."""
    return rendered(settings(workers, **more), HOST)
