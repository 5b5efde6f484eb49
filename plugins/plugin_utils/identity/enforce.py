# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Makes roles and bindings those that are declared: applies them, and removes what is no longer declared."""

from __future__ import annotations

import typing as t
from collections.abc import Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.identity.grants import KINDS
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.identity.roles import (
    LABEL,
    Object,
    named_roles,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.objects import (
    ObjectChange,
    Paths,
    apply_objects,
)

_OWN = ("RoleBinding", "ClusterRoleBinding", "ClusterRole")
"""Bindings first: what they give ends before their role does."""


class Enforced(t.NamedTuple):
    """What was done."""

    changes: list[ObjectChange]
    removed: list[str]


def enforce(api: Api, declared: Sequence[Object], *, check: bool = False) -> Enforced:
    """Make the cluster's named roles and their bindings those that are declared.

    Args:
        api: the cluster.
        declared: all of them; none removes every one.
        check: only tell what would change.

    Raises:
        ClusterError: the API refuses something, for example because a namespace is not there.
    """
    gone = _no_longer_declared(api, declared)
    if not check:
        for _, path in gone:
            api.delete(path)
    return Enforced(apply_objects(api, declared, dry_run=check), [name for name, _ in gone])


def removals(api: Api, declared: Sequence[Object]) -> list[str]:
    """Return the roles and bindings that ``enforce`` would remove; nothing is changed."""
    return [name for name, _ in _no_longer_declared(api, declared)]


def _no_longer_declared(api: Api, declared: Sequence[Object]) -> list[tuple[str, str]]:
    # A site without identity pays one request for that.
    first = next(iter(named_roles().values())).object_name
    if not declared and api.find(f"{KINDS['ClusterRole']}/{first}") is None:
        return []
    paths = Paths(api)
    keep = {paths.of(item) for item in declared}
    selector = ",".join(f"{key}={value}" for key, value in LABEL.items())
    gone = []
    for kind in _OWN:
        page = api.get(KINDS[kind], labelSelector=selector)
        for item in page["items"]:
            path = paths.of({"apiVersion": page["apiVersion"], "kind": kind, "metadata": item["metadata"]})
            if path not in keep:
                where = item["metadata"].get("namespace")
                name = item["metadata"]["name"]
                gone.append((f"{kind} {where}/{name}" if where else f"{kind} {name}", path))
    return gone
