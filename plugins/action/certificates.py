# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Finds the certificates of one host, and keeps them for the report over all hosts."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase
from ansible_collections.ironspan.hybrid.plugins.plugin_utils import payload
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.certificates.collected import keep
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.answer import (
    CERTIFICATES,
    read_whole,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.worker import bind_children

PROGRAM = "certificates"

bind_children()
payload.engine()  # both here, because the main process imports this file before it starts workers


class ActionModule(ActionBase):  # type: ignore[misc]
    """The action ``ironspan.hybrid.certificates``."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_diff = True
    _VALID_ARGS = frozenset({"root"})

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Run the module, write its answer into the run's folder."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        given = dict(self._task.args)
        answer = read_whole(
            payload.execute(self._execute_module, PROGRAM, given, variables, keep=False), CERTIFICATES
        )
        if answer.get("failed") or answer.get("unreachable"):
            return {**result, **answer}
        keep(str(variables["inventory_hostname"]), answer)
        return {
            **result,
            "changed": False,
            "certificates": len(answer["certificates"]),
            "unreadable": answer["unreadable"],
        }
