# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Checks the whole inventory and writes every host's document, without contacting a host."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible.plugins.action import ActionBase
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.prepare import renderer_for
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.run_folder import RunFolder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.ansible_run import site_of_run
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import SiteError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import ROLES_FOLDER


class ActionModule(ActionBase):  # type: ignore[misc]
    """The action ``ironspan.hybrid.validate``."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _supports_diff = True
    _VALID_ARGS = frozenset({"roles_folder"})

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Validate; the message has all problems, the result a summary."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        roles_folder = Path(self._task.args.get("roles_folder") or ROLES_FOLDER)
        try:
            site = site_of_run(task_vars or {}, roles_folder)
            renderer, authorities = renderer_for(site, roles_folder, make=not self._task.check_mode)
            documents = RunFolder().write(site, renderer)
        except SiteError as error:
            count = len(error.problems)
            what = "1 problem" if count == 1 else f"{count} problems"
            lines = "\n".join(str(problem) for problem in error.problems)
            return {
                **result,
                "failed": True,
                "msg": f"{what} in the inventory; no host was contacted.\n{lines}",
            }
        return {
            **result,
            "changed": bool(authorities.made),
            "site": site.name,
            "hosts": len(site.hosts),
            "documents": documents,
            "made": authorities.made,
        }
