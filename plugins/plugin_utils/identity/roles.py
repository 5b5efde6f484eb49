# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The named roles as data, and their objects."""

from __future__ import annotations

import copy
import dataclasses
import functools
import typing as t
from collections.abc import Mapping
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import read_yaml

Object = dict[str, t.Any]
Scope = t.Literal["namespace", "cluster"]
ROLES = Path(__file__).with_name("roles.yml")
BREAK_GLASS = "break-glass"
"""No group of Entra ID has it: it is for when nobody can come in by Entra ID."""
GROUP = "rbac.authorization.k8s.io"
LABEL = {"app.kubernetes.io/managed-by": "ironspan", "app.kubernetes.io/component": "identity"}


@dataclasses.dataclass(frozen=True, slots=True)
class NamedRole:
    """One role.

    Args:
        name: as the inventory calls it.
        scope: where it is bound, in namespaces or in the whole cluster.
        summary: what it is for.
        rules: as a ClusterRole has them.
    """

    name: str
    scope: Scope
    summary: str
    rules: tuple[Object, ...]

    @property
    def object_name(self) -> str:
        """Return the name of its ClusterRole."""
        return f"ironspan-{self.name}"

    def as_object(self) -> Object:
        """Return its ClusterRole."""
        annotations = {"ironspan.io/summary": self.summary}
        return {
            "apiVersion": f"{GROUP}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": self.object_name, "labels": dict(LABEL), "annotations": annotations},
            "rules": copy.deepcopy(list(self.rules)),
        }


@functools.lru_cache(maxsize=1)
def named_roles() -> Mapping[str, NamedRole]:
    """Return the named roles by name, in the order of roles.yml."""
    return {
        name: NamedRole(name, entry["scope"], entry["summary"], tuple(entry["rules"]))
        for name, entry in read_yaml(ROLES).items()
    }
