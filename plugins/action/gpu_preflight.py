# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Asks idle GPU nodes for a preflight, those first whose last one is the longest ago."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import ClusterAction, Result
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy import idle


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.gpu_preflight``."""

    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {
        "most": {"type": "int", "required": True},
        "days": {"type": "int", "required": True},
    }

    def visit(self, session: Session, arguments: Result) -> Result:
        """Choose, and write the request on each node that is chosen."""
        site = session.site
        names = [host.name for host in site.group("gpu") if self.is_about(host.name, site)]
        if not names:
            notes = ["no host of this run is in the group gpu"]
            self.say(notes[0])
            return {"changed": False, "asked": [], "left": {}, "notes": notes}
        api = session.api()
        chosen = idle.choose(
            names,
            api.get("/api/v1/nodes")["items"],
            api.get("/api/v1/pods")["items"],
            most=arguments["most"],
            days=arguments["days"],
            now=time.time(),
        )
        left, asked = dict(chosen.left), list[idle.Asked]()
        for one in chosen.asked:
            if not self._task.check_mode and not idle.write(api, one.node, one.version, one.action):
                left[one.node] = "something else has changed it just now"
                continue
            asked.append(one)
        notes = idle.told(asked, left)
        for line in notes:
            self.say(line)
        return {"changed": bool(asked), "asked": [one.node for one in asked], "left": left, "notes": notes}
