# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reboots a host on which something waits for a boot, and waits until it answers from the next one."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleActionFail
from ansible.plugins.action.reboot import ActionModule as Reboot
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.ansible_run import site_of_run
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import SiteError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.worker import bind_children

Result = dict[str, t.Any]

bind_children()  # here, because the main process imports this file before it starts workers


class ActionModule(Reboot):  # type: ignore[misc]
    """The action ``ironspan.hybrid.node_reboot``: ansible.builtin.reboot where there is a reason for it."""

    _VALID_ARGS = frozenset({"because"})
    DEFAULT_REBOOT_MESSAGE = "ironspan reboots this node: a change waits for it, and its pods are gone"

    def run(self, tmp: t.Any = None, task_vars: Result | None = None) -> Result:
        """Do nothing without a reason; otherwise reboot and wait for another boot ID."""
        if not self._task.args.get("because"):
            return {"changed": False, "rebooted": False}
        variables = task_vars or {}
        name = str(variables.get("inventory_hostname", ""))
        try:
            host = site_of_run(variables).hosts[name]
        except SiteError as error:
            raise AnsibleActionFail(str(error)) from error
        self.DEFAULT_REBOOT_TIMEOUT = int(host.variables["site_boot_timeout_seconds"])
        found: Result = super().run(tmp, task_vars)
        if found.get("failed"):
            found["msg"] = (
                f"{name} was to be rebooted and does not answer from another boot: {found.get('msg', '')}. "
                "It stays cordoned. Look at its console, or use ironspan bmc power; then run this again."
            )
        return found
