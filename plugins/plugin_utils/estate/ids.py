# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Identifiers in Azure: resource ids, names that follow from what they name."""

from __future__ import annotations

import hashlib
import uuid

_NAMESPACE = uuid.UUID("6f0c1d2e-6f0b-5a55-9d9c-1f2a7c6a4c11")
"""Of this project's own: role assignments that others make never get the same name."""


def group_id(subscription: str, group: str) -> str:
    """Return the id of a resource group."""
    return f"/subscriptions/{subscription}/resourceGroups/{group}"


def resource_id(scope: str, kind: str, name: str) -> str:
    """Return the id of a resource.

    Args:
        scope: id of its resource group, or of the resource that it extends.
        kind: its type, such as ``Microsoft.Network/virtualNetworks/subnets``.
        name: its name, with those of the resources around it, such as ``net/control``.
    """
    provider, *types = kind.split("/")
    steps = "/".join(f"{one}/{named}" for one, named in zip(types, name.split("/"), strict=True))
    return f"{scope}/providers/{provider}/{steps}"


def named_by(*parts: str) -> str:
    """Return a UUID that follows from texts, which Azure compares without case."""
    return str(uuid.uuid5(_NAMESPACE, "|".join(parts).lower()))


def short_hash(*parts: str) -> str:
    """Return eight characters that follow from texts: the part that makes a name unique in the world."""
    return hashlib.sha256("|".join(parts).lower().encode()).hexdigest()[:8]
