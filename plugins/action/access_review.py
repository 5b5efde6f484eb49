# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reviews who can do what in the cluster."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleActionFail
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import ClusterAction, Result
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.part import of_file
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.identity.review import review
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.identity.used import read_usage


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.access_review``."""

    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {
        "audit_logs": {"type": "list", "elements": "path", "default": []},
        "everything": {"type": "bool", "default": False},
        "subject": {"type": "str", "default": ""},
        "can": {"type": "list", "elements": "str", "default": []},
        "namespace": {"type": "str", "default": ""},
        "fail_on_findings": {"type": "bool", "default": False},
    }

    def visit(self, session: Session, arguments: Result) -> Result:
        """Read the logs and the cluster, and show what was found."""
        can = tuple(arguments["can"])
        if len(can) not in (0, 2):
            raise AnsibleActionFail("can is a verb and a resource, such as [create, pods/exec]")
        made = review(
            session.api(),
            read_usage(arguments["audit_logs"]) if arguments["audit_logs"] else None,
            everything=arguments["everything"],
            subject=arguments["subject"],
            can=(can[0], can[1]) if can else None,
            namespace=arguments["namespace"],
            admission=of_file(session.site),
        )
        text = made.as_text()
        for line in text.splitlines():
            self.say(line)
        result: Result = {"changed": False, "report": made.as_json(), "text": text}
        if arguments["fail_on_findings"] and made.unexpected:
            result.update(failed=True, msg=f"{len(made.unexpected)} findings that nothing explains")
        return result
