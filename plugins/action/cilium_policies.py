# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reports whether Cilium has taken every policy of the cluster, and fails when it has not."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import ClusterAction, Result
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cilium import state
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.cilium_policies``."""

    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {
        "phase": {"type": "str", "choices": ["kinds", "policies"], "default": "policies"},
        "timeout": {"type": "int", "default": 180},
        "settle": {"type": "int", "default": 3},
    }

    def visit(self, session: Session, arguments: dict[str, t.Any]) -> Result:
        """Wait for what the operator makes or says; only for sites that have Cilium."""
        if session.site.cni != "cilium":
            return {"changed": False, "policies": [], "msg": "This site's pod network is not Cilium."}
        if self._task.check_mode and arguments["phase"] == "kinds":
            return {"changed": False, "policies": []}
        api = session.api()
        if arguments["phase"] == "kinds":
            state.wait_for_kinds(api, arguments["timeout"])
            return {"changed": False, "policies": []}
        policies = state.judged(api, arguments["timeout"], arguments["settle"])
        rejected = state.rejections(policies)
        result: Result = {
            "changed": False,
            "policies": [policy._asdict() for policy in policies],
            "msg": f"Cilium has taken all {len(policies)} of its policies.",
        }
        if rejected:
            lines = "\n".join(f"  {line}" for line in rejected)
            result.update(
                failed=True,
                msg=f"Cilium ignores {len(rejected)} of {len(policies)} policies; the pods that they are for "
                f"are not protected by them:\n{lines}\nCorrect them or delete them, then run this again.",
            )
        return result
