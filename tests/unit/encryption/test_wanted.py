# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A site that says another way to store secrets than its own is told that saying so changes nothing."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.encryption.wanted import (
    VARIABLE,
    without_effect,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.encryption_state import READ, Encryption


def site(says: str, planes: int = 1) -> t.Any:
    hosts = [types.SimpleNamespace(variables={VARIABLE: says})] * planes
    return types.SimpleNamespace(group=lambda name: hosts if name == "control_plane" else [])


@pytest.mark.parametrize(
    ("says", "state", "planes", "warned"),
    [
        ("none", Encryption(), 1, ""),
        ("secretbox", Encryption(("secretbox-1",)), 3, ""),
        ("secretbox", Encryption(), 1, "says secretbox, and this site was begun with none"),
        ("none", Encryption(("kms-1",)), 1, "says none, and this site was begun with key_vault"),
        ("secretbox", Encryption(("identity", "secretbox-1"), READ, "2026-01-01T00:00:00Z"), 1, ""),
        ("secretbox", Encryption(), 0, ""),
    ],
)
def test_what_is_said(says: str, state: Encryption, planes: int, warned: str) -> None:
    hints = without_effect(site(says, planes), state)
    assert bool(hints) == bool(warned)
    assert all(warned in hint and "ironspan encryption rotate" in hint for hint in hints)
