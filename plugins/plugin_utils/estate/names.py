# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Names that must be unique in the world: made of the site's name, with a hash that no other site has."""

from __future__ import annotations

import re

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.ids import short_hash

_LONGEST = 24
"""Characters of the name of a vault and of a storage account."""
_HASH = 8


def vault_name(site: str, subscription: str, group: str) -> str:
    """Return the name of the site's vault: letters, digits and single hyphens, a letter first."""
    letters = re.sub(r"[^a-z0-9]+", "-", site.lower()).strip("-")
    start = f"kv-{letters}"[: _LONGEST - _HASH - 1].strip("-")
    return f"{start}-{short_hash('vault', subscription, group, site)}"


def account_name(what: str, site: str, subscription: str, group: str) -> str:
    """Return the name of a storage account: lower-case letters and digits.

    Args:
        what: which account of the site.
        site: its name.
        subscription: its id.
        group: name of the resource group.
    """
    letters = re.sub(r"[^a-z0-9]", "", f"{what}{site}".lower())[: _LONGEST - _HASH]
    return f"{letters}{short_hash('account', what, subscription, group, site)}"
