# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A site's estate in the emulated Azure: data of it, and runs of the kind that deploys it."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Callable
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.deployments import Deployments
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import generate_key_file
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.run import Consent, Outcome, bring
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import State
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds._azure_estate import AzureEstate
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds.azure_estate import declared

from ironspan.lab.azure import settings
from ironspan.lab.azure.config import authority
from tests.support.lab_arm import LabArm
from tests.support.small_plays import mirror_index

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
    "azure_authorized_keys": [
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHvTgzvdMMV0tNd2Y8n7ypp3I7ePEg4pGBt9ZbDEqk3y ops"
    ],
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


def site(arm: LabArm, folder: Path, **more: t.Any) -> Path:
    """Write an inventory without a single host: its machines come from the estate; return its folder.

    Args:
        arm: where the estate is.
        folder: for it, and for what stands beside it.
        more: variables beside those that the site needs, or instead of them.
    """
    inventory = folder / "site"
    inventory.mkdir()
    (folder / "index.json").write_text(mirror_index())
    url = arm.azure.url("management")
    variables = {
        **SMALL,
        "site_mirror_url": "http://10.1.0.2:8080",
        "site_pki_store": str(folder / "pki"),
        "site_pki_key_file": str(generate_key_file(folder / "key")),
        "site_artifacts_index": str(folder / "index.json"),
        "azure_known_hosts": str(folder / "known_hosts"),
        "azure_management": {
            "kind": "workload_identity",
            "tenant_id": settings.TENANT,
            "client_id": settings.IDENTITIES["operator"].client_id,
            "token_file": str(arm.azure.service_account("operator")),
            "authority": arm.azure.url("login"),
            "url": url,
            "ca": str(authority(arm.azure.folder)),
        },
        "azure_pools": [POOL],
        **more,
    }
    (inventory / "hosts.yml").write_text(json.dumps({"all": {"vars": variables}}))
    (inventory / "azure.yml").write_text(json.dumps({"plugin": "ironspan.hybrid.azure"}))
    return inventory
