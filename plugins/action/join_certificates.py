# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Signs the certificates that a batch of hosts joins with, each for its own host."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.joins import sign_for_batch
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.run_folder import RunFolder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.worker import bind_children

bind_children()  # here, because the main process imports this file before it starts workers


class ActionModule(ActionBase):  # type: ignore[misc]
    """The action ``ironspan.hybrid.join_certificates``."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Sign; a request that is refused is told, and fails its host when that joins."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(
            argument_spec={"hosts": {"type": "list", "elements": "str", "required": True}}
        )
        if self._task.check_mode:
            return {**result, "changed": False, "signed": [], "refused": {}}
        signed, refused = sign_for_batch(RunFolder(), arguments["hosts"])
        for host, reason in refused.items():
            Display().warning(f"{host} gets no certificate to join with: {reason}")
        return {**result, "changed": False, "signed": signed, "refused": refused}
