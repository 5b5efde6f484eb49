# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the site says about secrets in etcd."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.encryption_state import (
    IDENTITY,
    KMS,
    SECRETBOX,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site

VARIABLE = "control_plane_secrets_encryption"
KINDS: Mapping[str, str] = {"none": IDENTITY, "secretbox": SECRETBOX, "key_vault": KMS}
"""What the variable says, and the kind of provider that it means."""


def wanted_kind(site: Site) -> str:
    """Return the kind of provider that the site says."""
    hosts = site.group("control_plane")
    return KINDS[str(hosts[0].variables.get(VARIABLE, "none"))] if hosts else IDENTITY
