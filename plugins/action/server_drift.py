# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Says how servers differ from what is declared of them; changes nothing."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.ansible_run import site_of_run
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.drift import drift_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_api import connected
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.login import login_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import ActionableError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_report
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds import bare_metal_server
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import value_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.worker import bind_children

Result = dict[str, t.Any]

bind_children()  # here, because the main process imports this file before it starts workers


class ActionModule(ActionBase):  # type: ignore[misc]
    """The action ``ironspan.hybrid.server_drift``."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> Result:
        """Ask Ironic; drift fails the task, with a line each."""
        result: Result = super().run(tmp, task_vars)
        given = task_vars or {}
        self.validate_argument_spec(argument_spec={})
        try:
            return {**result, **self._found(given)}
        except ActionableError as error:
            return {**result, "failed": True, "msg": str(error)}

    def _found(self, given: Result) -> Result:
        settings = {name: given[name] for name in bare_metal_server.VARIABLES if name in given}
        variables = t.cast("Result", self._templar.template(settings))
        variables["site"] = site_of_run(given)
        declared = bare_metal_server.declared(variables, given)
        wanted = {name: state for name, state in declared.items() if state is not None}
        findings = drift_of(connected(**login_of(variables)), wanted)
        report = {"servers": len(wanted), "drift": [finding.as_dict() for finding in findings]}
        write_report(str(value_of(given, "ironspan_report") or ""), report)
        lines = [str(finding) for finding in findings]
        for line in lines or [f"all {len(wanted)} servers are as they are declared"]:
            Display().display(f"  {line}")
        failed = {"failed": True, "msg": f"{len(lines)} differences:\n" + "\n".join(lines)} if lines else {}
        return {"changed": False, **report, **failed}
