# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Refuses a workflow of a controller that was approved by whoever launched it."""

from __future__ import annotations

import os
import typing as t

from ansible.plugins.action import ActionBase
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.api import (
    Api,
    token_of_environment,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.approval import fault_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.credentials import HOST, TOKEN
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import ActionableError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.worker import bind_children

Result = dict[str, t.Any]

bind_children()  # here, because the main process imports this file before it starts workers


class ActionModule(ActionBase):  # type: ignore[misc]
    """The action ``ironspan.hybrid.awx_guard``."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {"workflow_job": {"type": "int", "required": True}}

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> Result:
        """Ask the controller who launched and who approved; fail where that is one person, or not known."""
        result: Result = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(argument_spec=self.ARGUMENTS)
        number = arguments["workflow_job"]
        if number <= 0:
            msg = "This job is no part of a workflow; the guard runs behind an approval."
            return {**result, "failed": True, "msg": msg}
        try:
            fault = self._fault(number)
        except ActionableError as error:
            return {**result, "failed": True, "msg": f"It is not known who approved: {error}"}
        if fault:
            remedy = "launch it again, and let somebody else approve it"
            return {**result, "failed": True, "msg": f"{fault}; {remedy}. Nothing was done."}
        return {**result, "changed": False}

    def _fault(self, number: int) -> str:
        api = Api(os.environ.get(HOST, ""), token_of_environment(TOKEN))
        nodes = api.listed(f"workflow_jobs/{number}/workflow_nodes/")
        approvals = [
            api.get(f"workflow_approvals/{node['job']}/")
            for node in nodes
            if ((node.get("summary_fields") or {}).get("job") or {}).get("type") == "workflow_approval"
        ]
        return fault_of(api.get(f"workflow_jobs/{number}/"), approvals)
