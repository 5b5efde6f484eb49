# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A site's estate in the emulated Azure: data of it, and runs of the kind that deploys it."""

from __future__ import annotations

import typing as t
from collections.abc import Callable

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.deployments import Deployments
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.run import Consent, Outcome, bring
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import State
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds._azure_estate import AzureEstate
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds.azure_estate import declared

from ironspan.lab.azure import settings
from tests.support.lab_arm import LabArm

SMALL: dict[str, t.Any] = {
    "site_name": "example",
    "site_api_endpoint": "api.example.internal:6443",
    "site_api_address": "10.20.0.10",
    "azure_subscription": settings.SUBSCRIPTION,
    "azure_tenant": settings.TENANT,
    "azure_region": "westeurope",
    "azure_address_space": "10.20.0.0/20",
    "azure_rack_networks": ["10.1.0.0/16"],
    "azure_administrator_networks": ["10.9.0.0/24"],
    "azure_authorized_keys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBq0 ops"],
    "azure_image": {"version": "24.04.202610140"},
    "azure_machines": [
        {"name": "etcd", "count": 3},
        {"name": "control-plane", "groups": ["control_plane"], "count": 3},
    ],
}
"""Three members of etcd and three control planes."""
POOL = {"name": "burst", "size": "Standard_NC40ads_H100_v5", "count": 0, "most": 4}
NAME = "ironspan-example"


def wanted(**more: t.Any) -> dict[str, State | None]:
    """Return the estate as it is wanted, with more data."""
    return declared({**SMALL, **more}, {})


def kind(arm: LabArm, **options: t.Any) -> AzureEstate:
    """Return the kind, which looks again at once and tries again without pauses."""
    options = {"every_s": 0.2, "pauses": (0.2,) * 6, **options}
    return AzureEstate(
        lambda subscription: Deployments(arm.azure.management(arm.identity), subscription, **options)
    )


def run(
    arm: LabArm,
    *,
    allowed: bool = False,
    check: bool = False,
    say: Callable[[str], None] = lambda text: None,
    options: dict[str, t.Any] | None = None,
    **more: t.Any,
) -> Outcome:
    """Bring the estate to what the data want."""
    return bring(kind(arm, **(options or {})), wanted(**more), Consent(allowed), say, check=check)
