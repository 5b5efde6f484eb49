# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the doctor says about the encryption of secrets."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.encryption_checks import secrets
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.findings import (
    NOTICE,
    PROBLEM,
    Controller,
    Evidence,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.encryption_state import (
    READ,
    Encryption,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import PlanPolicy

A = Encryption(("secretbox-1",))


@pytest.mark.parametrize(
    ("state", "wish", "level", "says"),
    [
        (Encryption(), "none", "", ""),
        (A, "secretbox", "", ""),
        (Encryption(("secretbox-7",), "", "", ("secretbox-6",)), "secretbox", "", ""),
        (Encryption(), "secretbox", PROBLEM, "stored in clear in etcd"),
        (Encryption(("identity",), "", "", ("secretbox-1",)), "key_vault", PROBLEM, "stored in clear"),
        (A, "key_vault", NOTICE, "stored with secretbox-1"),
        (A, "none", NOTICE, "stored with secretbox-1"),
        (Encryption(("secretbox-1", "kms-1"), READ, "2026"), "key_vault", NOTICE, "stage read since 2026"),
    ],
)
def test_what_is_not_as_the_inventory_says(state: Encryption, wish: str, level: str, says: str) -> None:
    host = types.SimpleNamespace(variables={"control_plane_secrets_encryption": wish})
    policy = PlanPolicy(approvals=0)
    site = t.cast("t.Any", types.SimpleNamespace(group=lambda name: [host], plan=policy))
    evidence = Evidence(site=site, now=0, controller=Controller(encryption=state))
    found = list(secrets(evidence))
    assert [finding.level for finding in found] == [level] * bool(level)
    assert all(says in finding.what for finding in found)
    unbuilt = Evidence(site=site, now=0, controller=Controller(encryption=state, built=False))
    assert list(secrets(unbuilt)) == []
