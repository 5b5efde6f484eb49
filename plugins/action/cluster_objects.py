# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Applies cluster objects in one batch."""

from __future__ import annotations

import json
import typing as t

from ansible.errors import AnsibleActionFail
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.action import ClusterAction, Result
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.objects import apply_objects, shown
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.cluster_objects``."""

    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {"objects": {"type": "raw", "required": True}}

    def visit(self, session: Session, arguments: dict[str, t.Any]) -> Result:
        """Apply; in check mode ask the API what would come out."""
        given = arguments["objects"]
        objects = [given] if isinstance(given, dict) else given
        if not isinstance(objects, list) or not all(isinstance(item, dict) for item in objects):
            raise AnsibleActionFail("objects is not a list of Kubernetes objects")
        plain = json.loads(json.dumps(objects, default=str))
        changes = apply_objects(session.api(patience=60), plain, dry_run=self._task.check_mode)
        return {
            "changed": bool(changes),
            "objects": [change.name for change in changes],
            "diff": [
                {
                    "before_header": change.name,
                    "after_header": change.name,
                    "before": _text(shown(change.before)),
                    "after": _text(shown(change.after)),
                }
                for change in changes
            ],
        }


def _text(item: dict[str, t.Any] | None) -> str:
    return "" if item is None else json.dumps(item, indent=2, sort_keys=True) + "\n"
