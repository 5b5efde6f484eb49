# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Who may use the data of what an estate has, by role assignments and the actions of their roles.

Actions of built-in roles: "Azure built-in roles" for storage and security (Microsoft Learn).
"""

from __future__ import annotations

import fnmatch
from typing import Any

from ironspan.lab.azure.arm import ids
from ironspan.lab.azure.arm.rules.access import ASSIGNMENT, DEFINITION
from ironspan.lab.azure.arm.state import State

BLOBS = "Microsoft.Storage/storageAccounts/blobServices/containers"
KEYS = "Microsoft.KeyVault/vaults/keys"
_USES = ("read", "wrap/action", "unwrap/action")
_MORE_USES = ("encrypt/action", "decrypt/action", "sign/action", "verify/action")
#: Built-in role -> what it allows with data; containers are looked at with the actions beside them.
_BUILT_IN: dict[str, tuple[str, ...]] = {
    "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1": (f"{BLOBS}/read", f"{BLOBS}/blobs/read"),
    "ba92f5b4-2d11-453d-a403-e96b0029c9fe": (
        *(f"{BLOBS}/{one}" for one in ("read", "write", "delete")),
        *(f"{BLOBS}/blobs/{one}" for one in ("read", "write", "delete", "add/action", "move/action")),
    ),
    "b7e6dc6d-f1e8-4753-8033-0f276bb0955b": (f"{BLOBS}/*",),
    "e147488a-f6f5-4113-8e2d-b22465e65bf6": tuple(f"{KEYS}/{one}" for one in _USES),
    "12338af0-0e69-4776-bea7-57ae8d297424": tuple(
        f"{KEYS}/{one}" for one in (*_USES, *_MORE_USES, "update/action", "backup/action")
    ),
    "14b46e9e-c2b7-41b4-b07b-48a6ebf60603": (f"{KEYS}/*",),
    "00482a5a-887f-4fb3-b363-3b7fe8e74483": ("Microsoft.KeyVault/vaults/*",),
}


def may(state: State, object_id: str, thing: str, action: str) -> bool:
    """Tell whether somebody may do something with the data of a resource.

    Args:
        state: Everything.
        object_id: `oid` of the token.
        thing: Id of the container, or of the key.
        action: As role definitions write it.
    """
    for one in state.of_type(ASSIGNMENT):
        about = one.properties
        mine = str(about.get("principalId")).lower() == object_id.lower()
        if not mine or one.visible_at > state.now():
            continue
        scope = str(about.get("scope"))
        if not ids.same(thing, scope) and not ids.below(thing.lower(), scope):
            continue
        role = str(about.get("roleDefinitionId")).rpartition("/")[2].lower()
        allowed, but = _of_role(state, role)
        if _any(action, allowed) and not _any(action, but):
            return True
    return False


def _of_role(state: State, role: str) -> tuple[list[str], list[str]]:
    """Return the actions that a role allows, and those that it takes away again."""
    for one in state.of_type(DEFINITION):
        if str(one.document["name"]).lower() == role:
            given: list[dict[str, Any]] = one.properties.get("permissions") or []
            allowed = [text for each in given for name in ("actions", "dataActions") for text in each[name]]
            but = [text for each in given for name in ("notActions", "notDataActions") for text in each[name]]
            return allowed, but
    return list(_BUILT_IN.get(role, ())), []


def _any(action: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(action.lower(), one.lower()) for one in patterns)
