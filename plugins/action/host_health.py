# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Looks at one host in one execution and keeps the answer for the doctor."""

from __future__ import annotations

import time
import typing as t

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible_collections.ironspan.hybrid.plugins.plugin_utils import payload
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.answer import HEALTH, read_whole
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.notebook import Notebook
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.run_folder import RunFolder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers, read_early
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.worker import bind_children

PROGRAM = "host_health"

bind_children()
read_early()
payload.engine()  # all three here, because the main process imports this file before it starts workers


class ActionModule(ActionBase):  # type: ignore[misc]
    """The action ``ironspan.hybrid.host_health``."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _VALID_ARGS = frozenset({"root"})

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Look; a host that does not answer is part of the answer, not a failure."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        host = str(variables["inventory_hostname"])
        notebook = Notebook(RunFolder())
        arguments: dict[str, t.Any] = {
            "probes": notebook.probes(host),
            "units": [*all_layers().units],
            "root": self._task.args.get("root", "/"),
        }
        document = notebook.document(host)
        if document:
            # As text: Ansible would walk through a structure again and again.
            arguments["document"] = document
        started = time.time()
        try:
            answer = read_whole(
                payload.execute(self._execute_module, PROGRAM, arguments, variables, keep=False), HEALTH
            )
        except AnsibleConnectionFailure as error:
            reason = _first_line(str(getattr(error, "message", "") or error))
            notebook.put(host, {"unreachable": reason})
            return {
                **result,
                "changed": False,
                "unreachable_because": reason,
                "msg": f"Unreachable: {reason}",
            }
        ended = time.time()
        if answer.get("unreachable"):
            reason = _first_line(str(answer.get("msg")))
            notebook.put(host, {"unreachable": reason})
            return {
                **result,
                "changed": False,
                "unreachable_because": reason,
                "msg": f"Unreachable: {reason}",
            }
        if answer.get("failed"):
            reason = _first_line(str(answer.get("msg") or answer.get("module_stderr") or "no answer"))
            notebook.put(host, {"error": reason})
            return {**result, "changed": False, "msg": f"Could not be looked at: {reason}"}
        health = answer["health"]
        notebook.put(host, {**health, **skew(health, started, ended)})
        return {**result, "changed": False, "health": {"seconds": health["seconds"]}}


def skew(health: t.Mapping[str, t.Any], started: float, ended: float) -> dict[str, float]:
    """Return how far a host's clock is ahead of the controller's, and how sure that is, in seconds.

    The host read its clock when its module began, which was after the start and ``seconds`` before the end.

    Args:
        health: with ``time_unix`` and ``seconds``.
        started: the controller's clock before the execution.
        ended: the same after it.
    """
    latest = max(started, ended - float(health["seconds"]))
    return {
        "skew_s": float(health["time_unix"]) - (started + latest) / 2,
        "skew_uncertain_s": (latest - started) / 2,
    }


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no reason given"
