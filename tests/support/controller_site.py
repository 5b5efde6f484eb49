# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A site whose controller is configured, and what is rendered of it."""

from __future__ import annotations

import pathlib
import typing as t
from collections.abc import Collection

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.rendered import Rendered, rendered
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.settings import (
    Settings,
    settings_of,
)

from tests.support.controller.server import Controller
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


SECRETS = (
    "IRONSPAN_AWX_SSH_KEY", "IRONSPAN_PKI_KEY", "IRONSPAN_AWX_BMC_ACCOUNTS", "IRONSPAN_AWX_READER_TOKEN",
    "SLACK_TOKEN", "PAGER_TOKEN", "PAGER_KEY",
)  # fmt: skip
"""The environment variables with secrets of such a site."""
FEW = (
    "site", "site (check)", "verify", "certs", "doctor", "backup drill", "what is left", "approval guard",
    "change (plan)", "change members", "change workers",
)  # fmt: skip


def small(made: Rendered, more: Collection[str] = (), workflow: str = "change") -> Rendered:
    """Return a configuration with few templates and one workflow, which loads in a moment.

    Args:
        made: the whole configuration.
        more: further templates, without the prefix.
        workflow: the one that stays.
    """
    kept = {f"ironspan {name}" for name in (*FEW, *more)}
    workflows = [
        entry for entry in made["controller_workflows"] if entry["name"] == f"ironspan {workflow} workflow"
    ]
    kept.update(entry["name"] for entry in workflows)
    roles = []
    for entry in made["controller_roles"]:
        lists = {
            key: [name for name in entry.get(key, ()) if name in kept]
            for key in ("job_templates", "workflows")
        }
        roles.append({**entry, **{key: names for key, names in lists.items() if key in entry}})
    templates = [entry for entry in made["controller_templates"] if entry["name"] in kept]
    return {
        **made,
        "controller_templates": templates,
        "controller_workflows": workflows,
        "controller_schedules": [
            entry for entry in made["controller_schedules"] if entry["unified_job_template"] in kept
        ],
        "controller_roles": roles,
    }


def project(folder: pathlib.Path) -> str:
    """Make a project whose playbooks do nothing but the guard's, and return its URL."""
    import shutil

    playbooks = folder / "playbooks"
    playbooks.mkdir(parents=True)
    for path in (ROOT / "playbooks").glob("*.yml"):
        if path.stem in ("awx_guard",):
            shutil.copy(path, playbooks)
        else:
            (playbooks / path.name).write_text(PLAY.format(name=path.stem))
    inventory = folder / "inventories"
    inventory.mkdir()
    (inventory / "production").write_text("[nodes]\nlocalhost ansible_connection=local\n")
    return f"file://{folder}"


PLAY = """\
- name: Stand-in of {name}
  hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - name: Say what was given
      ansible.builtin.debug:
        msg: "{name} consent={{{{ ironspan_allow_destructive | default('none') }}}}"

    - name: Break where it is asked for
      ansible.builtin.assert:
        that: lookup('ansible.builtin.env', 'BREAKS') != '{name}'
        quiet: true
"""


def controller(**environment: str) -> Controller:
    """Return a stand-in whose jobs have the collection of this project, and these variables."""
    return Controller(
        environment={
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections"),
            "ANSIBLE_HOME": str(ROOT / ".ansible"),
            **environment,
        }
    )
