# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Makes and checks the containers that backups go to, through Azure's resource manager."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.container import StoreSetupError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.management import (
    URL,
    Management,
    credential,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.setup import set_up
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.worker import bind_children

_CONTAINER = {
    "subscription": {"type": "str", "required": True},
    "resource_group": {"type": "str", "required": True},
    "account": {"type": "str", "required": True},
    "container": {"type": "str", "required": True},
    "retention_days": {"type": "int", "required": True},
    "writers": {"type": "list", "elements": "str", "default": []},
    "collectors": {"type": "list", "elements": "str", "default": []},
    "drills": {"type": "list", "elements": "str", "default": []},
    "readers": {"type": "list", "elements": "str", "default": []},
}
_MANAGEMENT = {
    "kind": {
        "type": "str",
        "default": "azure_cli",
        "choices": ["azure_cli", "managed_identity", "workload_identity"],
    },
    "client_id": {"type": "str", "default": ""},
    "tenant_id": {"type": "str", "default": ""},
    "token_file": {"type": "str", "default": "", "no_log": False},
    "authority": {"type": "str", "default": ""},
    "url": {"type": "str", "default": URL},
    "audience": {"type": "str", "default": URL},
    "ca": {"type": "str", "default": ""},
}

bind_children()  # here, because the main process imports this file before it starts workers


class ActionModule(ActionBase):  # type: ignore[misc]
    """The action ``ironspan.hybrid.backup_store``."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _supports_diff = True
    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {
        "containers": {"type": "list", "elements": "dict", "required": True, "options": _CONTAINER},
        "management": {"type": "dict", "default": {}, "options": _MANAGEMENT, "apply_defaults": True},
        "lock": {"type": "str", "default": ""},
    }

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Set the containers up, or say why not; the roles that have to exist are shown."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(argument_spec=self.ARGUMENTS)
        if not arguments["containers"]:
            return {**result, "changed": False, "msg": "etcd_backup_containers names no container."}
        managed = arguments["management"]

        def connect(subscription: str) -> Management:
            identity = credential(managed, managed["ca"])
            return Management(identity, subscription, managed["url"], managed["audience"], managed["ca"])

        try:
            found = set_up(
                arguments["containers"], connect, arguments["lock"], check=bool(self._task.check_mode)
            )
        except StoreSetupError as error:
            return {**result, "failed": True, "msg": str(error)}
        show = Display().display
        for text in [*found.changes, *(f"not seen: {text}" for text in found.not_seen)]:
            show(f"  {text}")
        for one in found.roles:
            role = one["role"]
            show(f"  has to exist: {role['Name']}: {', '.join(role['DataActions'])} on {one['scope']}")
        result.update(changed=bool(found.changes), changes=found.changes, diff=found.diff)
        result.update(roles=found.roles, not_seen=found.not_seen)
        if found.wrong:
            result.update(
                failed=True, msg="Roles are not as they should be (docs/store.md): " + "; ".join(found.wrong)
            )
        return result
