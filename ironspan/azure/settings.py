# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What settings files say of services of Azure."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping

from ironspan.program.settings import Section

ACCOUNT = re.compile(r"https://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[a-z0-9]+)?/?")
"""URL of a storage account or a vault."""
_ANYTHING = re.compile(r".*")
_SOMETHING = re.compile(r".+")


def vault(section: Section) -> Mapping[str, t.Any]:
    """Return a key of a vault: ``vault_url``, ``key``, and how the vault is spoken to."""
    return {
        "vault_url": section.text("vault_url", ACCOUNT, "https://NAME.vault.azure.net"),
        "key": section.text("key", _SOMETHING, "the name of the vault's key that wraps data keys"),
        **service(section),
    }


def service(section: Section) -> Mapping[str, t.Any]:
    """Return how a service of Azure is spoken to: ``credential``, ``ca``, ``private``."""
    return {
        "credential": credential(section.section("credential")),
        "ca": section.text("ca", _ANYTHING, "the path of an authority's certificate", default=""),
        "private": section.flag("private", True),
    }


def credential(section: Section) -> Mapping[str, t.Any]:
    """Return an identity, as ``identity.credential`` takes it."""
    kind = section.choice("kind", ("managed_identity", "arc", "workload_identity"))
    needed = kind == "workload_identity"
    some, default = (_SOMETHING, None) if needed else (_ANYTHING, "")
    found = {
        "kind": kind,
        "client_id": section.text("client_id", some, "the identity's client id", default),
        "tenant_id": section.text("tenant_id", some, "the tenant's id", default),
        "token_file": section.text("token_file", some, "the path of the projected token", default),
        "authority": section.text("authority", _ANYTHING, "nothing, or the cloud's https://AUTHORITY", ""),
    }
    section.end()
    return found
