# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reports what certificates the hosts have and when they end."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import ClusterAction, Result
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.certificates.run import report
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.certificates_report``."""

    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {
        "days": {"type": "int", "default": 30},
        "fail_when_due": {"type": "bool", "default": False},
        "everything": {"type": "bool", "default": False},
    }

    def visit(self, session: Session, arguments: Result) -> Result:
        """Put the report together and show it."""
        made = report(session.site, session.store, arguments["days"])
        text = made.as_text(arguments["everything"])
        for line in text.splitlines():
            self.say(line)
        result: Result = {"changed": False, "report": made.as_json(), "text": text}
        if arguments["fail_when_due"] and not made.ok:
            reasons = [f"{len(made.due)} certificates end within {made.days} days"] if made.due else []
            result.update(failed=True, msg="; ".join([*reasons, *made.problems]))
        return result
