# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Applies the objects that layers declare for the cluster."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import ClusterAction, Result
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.objects import (
    apply_objects,
    diff_of,
    name_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan import listed
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.prepare import renderer_for
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import day_zero


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.cluster_objects``."""

    CHANGES_THE_SITE = True
    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {
        "layers": {"type": "list", "elements": "str", "required": True},
    }

    def visit(self, session: Session, arguments: dict[str, t.Any]) -> Result:
        """Render, compare and apply."""
        if session.site.migration_cidr and day_zero.last_stage_begun(session.site.pki_store):
            raise ClusterError(
                "The last stage of moving this cluster to Cilium has begun; this inventory is older.",
                "Finish it: cni_migrate.yml -e ironspan_pod_network=cilium-only, which says what to write.",
            )
        if self.planned is not None:
            objects = [
                item for layer in arguments["layers"] for item in self.planned["objects"].get(layer, ())
            ]
        else:
            renderer, _authorities = renderer_for(session.site)
            objects = [item for layer in arguments["layers"] for item in renderer.objects(layer)]
        if not objects:
            return {"changed": False, "objects": [], "diff": []}
        api = session.api()
        if self.planned is not None:
            would = apply_objects(api, objects, dry_run=True)
            listed.insist_on_objects(self.planned, would, [(name_of(item), item) for item in objects])
        changes = apply_objects(api, objects, dry_run=self._task.check_mode)
        if not self._task.check_mode:
            day_zero.remember(session.site)
        return {
            "changed": bool(changes),
            "objects": [change.name for change in changes],
            "diff": [diff_of(change) for change in changes],
        }
