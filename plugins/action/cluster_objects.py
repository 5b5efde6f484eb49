# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Applies the objects that layers declare for the cluster, and deletes what they declare no longer."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions import pruning
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import ClusterAction, Result
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import owned
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.objects import (
    apply_objects,
    diff_of,
    name_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan import listed
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.documents import Renderer
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.prepare import renderer_for
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import day_zero


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.cluster_objects``."""

    CHANGES_THE_SITE = True
    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {
        "layers": {"type": "list", "elements": "str", "required": True},
    }

    _renderer: Renderer | None = None

    def visit(self, session: Session, arguments: dict[str, t.Any]) -> Result:
        """Render, compare, apply, and delete what is declared no longer."""
        if session.site.migration_cidr and day_zero.last_stage_begun(session.site.pki_store):
            raise ClusterError(
                "The last stage of moving this cluster to Cilium has begun; this inventory is older.",
                "Finish it: cni_migrate.yml -e ironspan_pod_network=cilium-only, which says what to write.",
            )
        declared = {layer: self._declared(session, layer) for layer in arguments["layers"]}
        objects = [item for layer in declared.values() for item in layer]
        if not any(pruning.may_prune(layer, items) for layer, items in declared.items()):
            return {"changed": False, "objects": [], "removed": [], "diff": []}
        api = session.api()
        there = pruning.there(api, session.site.name)
        gone = [one for layer in declared for one in pruning.undeclared(there, layer, declared[layer])]
        if self.planned is not None:
            would = apply_objects(api, objects, dry_run=True)
            listed.insist_on_objects(self.planned, would, [(name_of(item), item) for item in objects], gone)
        if not self._task.check_mode:
            pruning.insist_on_consent(gone, self._variables)
        check = self._task.check_mode
        # Access ends before any is given; what protects goes after what comes in its place.
        ended = [one for one in gone if one.loss == "access"]
        removed = [one.title for one in gone] if check else owned.remove(api, ended)
        changes = apply_objects(api, objects, dry_run=check)
        if not check:
            removed += owned.remove(api, [one for one in gone if one not in ended])
            day_zero.remember(session.site)
        return {
            "changed": bool(changes or removed),
            "objects": [change.name for change in changes],
            "removed": removed,
            "diff": [diff_of(change) for change in changes],
        }

    def _declared(self, session: Session, layer: str) -> list[dict[str, t.Any]]:
        """Return the objects of a layer, those of the plan where there is one."""
        if self.planned is not None:
            return list(self.planned["objects"].get(layer, ()))
        if self._renderer is None:
            self._renderer = renderer_for(session.site)[0]
        return self._renderer.objects(layer)
