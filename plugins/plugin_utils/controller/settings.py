# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a site says of its controller: the variables of the role ``awx``, typed."""

from __future__ import annotations

import dataclasses
import math
import typing as t
from collections.abc import Mapping, Sequence

VARIABLES: t.Final = (
    "awx_organization",
    "awx_prefix",
    "awx_project_url",
    "awx_project_branch",
    "awx_project_credential",
    "awx_project_signature_credential",
    "awx_playbooks_folder",
    "awx_inventory_path",
    "awx_execution_environment_image",
    "awx_instance_groups",
    "awx_plans_folder",
    "awx_slice_hosts",
    "awx_approval_minutes",
    "awx_ssh_user",
    "awx_bmc_accounts",
    "awx_azure_tenant_id",
    "awx_azure_client_id",
    "awx_azure_token_file",
    "awx_answers",
    "awx_notifications",
    "awx_schedules",
    "awx_alerts_left_alone",
    "awx_webhook_service",
)
"""What the configuration is made from; where it is loaded to is another matter (``awx_host``)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the configuration of a controller is made from. Names are those of the variables without ``awx_``.

    Args:
        workers: how many workers the inventory has; the number of slices follows from it.
    """

    workers: int
    organization: str
    prefix: str
    project_url: str
    project_branch: str
    project_credential: str
    project_signature_credential: str
    playbooks_folder: str
    inventory_path: str
    execution_environment_image: str
    instance_groups: Sequence[str]
    plans_folder: str
    slice_hosts: int
    approval_minutes: int
    ssh_user: str
    bmc_accounts: bool
    azure_tenant_id: str
    azure_client_id: str
    azure_token_file: str
    answers: Mapping[str, t.Any]
    notifications: Sequence[Mapping[str, t.Any]]
    schedules: Sequence[Mapping[str, t.Any]]
    alerts_left_alone: Sequence[str]
    webhook_service: str

    @property
    def slices(self) -> int:
        """How many jobs work on the workers at the same time."""
        return max(1, math.ceil(self.workers / self.slice_hosts))

    @property
    def azure(self) -> bool:
        """Whether jobs have an identity in Azure."""
        return bool(self.azure_client_id)

    def name(self, *words: str) -> str:
        """Return the name of an object of ours: the prefix, then words; ``_`` reads as a space."""
        return " ".join((self.prefix, *(word.replace("_", " ") for word in words)))

    def plan_file(self, operation: str) -> str:
        """Return the plan that an operation's workflow makes and applies."""
        return f"{self.plans_folder.rstrip('/')}/{self.prefix}-{operation}.plan.json"


def settings_of(variables: Mapping[str, t.Any], workers: int) -> Settings:
    """Return the settings of a site.

    Args:
        variables: of a host, checked and with their defaults.
        workers: number of hosts in the group ``nodes``.
    """
    given = {name.removeprefix("awx_"): variables[name] for name in VARIABLES}
    return Settings(workers=workers, **given)
