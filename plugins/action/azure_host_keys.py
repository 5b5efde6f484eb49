# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Records the SSH host keys of a site's machines in Azure, read through its control plane."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.ansible_run import site_of_run
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure import machines, recording
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.connection import connection
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.rest import Rest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import ActionableError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.declared import declared
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.known_hosts import KnownHostsFile
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.worker import bind_children

Result = dict[str, t.Any]
KNOWN_HOSTS, MANAGEMENT = "azure_known_hosts", "azure_management"

bind_children()  # here, because the main process imports this file before it starts workers


class ActionModule(ActionBase):  # type: ignore[misc]
    """The action ``ironspan.hybrid.azure_host_keys``."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> Result:
        """Compare machines with the file, and record what it lacks."""
        result: Result = super().run(tmp, task_vars)
        self.validate_argument_spec(argument_spec={})
        try:
            site = site_of_run(task_vars or {})
            return {**result, **self._recorded(site.variables)}
        except ActionableError as error:
            return {**result, "failed": True, "msg": str(error)}

    def _recorded(self, variables: Mapping[str, t.Any]) -> Result:
        path, estate = str(variables.get(KNOWN_HOSTS) or ""), declared(variables)
        if not path or estate is None:
            return {"changed": False, "msg": f"{KNOWN_HOSTS} names no file, so nothing is recorded"}
        spoken, file = connection(variables.get(MANAGEMENT) or {}), KnownHostsFile(path, KNOWN_HOSTS)
        listed = machines.listed(Rest(spoken, estate.subscription), estate.site)
        seen, _strangers = machines.told_apart(listed, estate.groups.values())
        found = recording.difference(seen, file.entries())
        missing = [one.name for one in found.missing]
        if self._task.check_mode:
            left = sorted({*found.left.values()})
            return {"changed": bool(missing or left), "new": missing, "left": left, "unknown": found.doubtful}
        if missing:
            Display().display(f"  Azure reads the host keys of {', '.join(missing)}")
        done = recording.record(file, found, lambda wanted: machines.host_keys(spoken, wanted))
        answer: Result = {"new": done.new, "left": done.left, "unknown": done.failed}
        if done.failed:
            reasons = "; ".join(f"{name}: {why}" for name, why in sorted(done.failed.items()))
            answer |= {"failed": True, "msg": f"the host keys of some machines are not known. {reasons}"}
        return {**answer, "changed": bool(done.new or done.left)}
