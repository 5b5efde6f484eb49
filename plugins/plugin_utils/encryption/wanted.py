# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the site says about secrets in etcd."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.encryption_state import (
    IDENTITY,
    KMS,
    SECRETBOX,
    Encryption,
    kind_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site

VARIABLE = "control_plane_secrets_encryption"
KINDS: Mapping[str, str] = {"none": IDENTITY, "secretbox": SECRETBOX, "key_vault": KMS}
"""What the variable says, and the kind of provider that it means."""


def wanted_kind(site: Site) -> str:
    """Return the kind of provider that the site says."""
    hosts = site.group("control_plane")
    return KINDS[str(hosts[0].variables.get(VARIABLE, "none"))] if hosts else IDENTITY


def without_effect(site: Site, state: Encryption) -> list[str]:
    """Return a warning where a site says another way to store secrets than the one it was begun with.

    Args:
        site: the site.
        state: how its secrets are stored.
    """
    wanted = wanted_kind(site)
    if not site.group("control_plane") or state.stage or kind_of(state.writes) == wanted:
        return []
    words = {kind: word for word, kind in KINDS.items()}
    return [
        f"{VARIABLE} says {words[wanted]}, and this site was begun with {words[kind_of(state.writes)]}: the "
        "variable alone changes nothing. ironspan encryption rotate goes from one to the other."
    ]
