# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Checks the whole cluster at once and shows the evidence."""

from __future__ import annotations

import typing as t

from ansible.utils.display import Display
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import (
    ClusterAction,
    Result,
    seconds,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import smoke
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session, expected
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.verify import verify


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.verify``."""

    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {
        "timeout": {"type": "int", "default": 120},
        "report": {"type": "path", "default": ""},
        "image": {"type": "str", "default": smoke.IMAGE},
    }

    def visit(self, session: Session, arguments: dict[str, t.Any]) -> Result:
        """Verify; fails when anything is wrong. Nothing that it makes stays."""
        if session.site.is_slice:
            return {"changed": False, "msg": "Not verified in a slice: run verify.yml once after all slices."}
        if self._task.check_mode:
            # Raises when nothing answers: in a check of a site that is still to be built that is no failure.
            session.api().text("/version")
        report = verify(
            session.api(),
            session.etcd_context(),
            expected(session.site)._replace(image=arguments["image"]),
            # A check waits for nothing: nobody is about to fix what it finds.
            0 if self._task.check_mode else seconds(arguments["timeout"], "timeout", 10),
            run_pods=not self._task.check_mode,
            progress=self.say,
        )
        text = report.as_text()
        Display().display(text)
        if arguments["report"] and not self._task.check_mode:
            report.write(arguments["report"])
        result: Result = {"changed": False, "report": report.as_json()}
        if not report.ok:
            wrong = [f"{check.name}: {problem}" for check in report.checks for problem in check.problems]
            result.update(failed=True, msg="The cluster is not as it should be.\n" + "\n".join(wrong))
        return result
