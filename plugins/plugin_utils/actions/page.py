# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the actions have in common that ask every host something and make a page of the answers."""

from __future__ import annotations

import datetime
import time
import typing as t
from pathlib import Path

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.ansible_run import site_of_run
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.findings import Content, Evidence
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.notebook import Notebook
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_report
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.run_folder import RunFolder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import SiteError, said_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import ROLES_FOLDER
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.worker import bind_children

Result = dict[str, t.Any]

bind_children()  # here, because the main process imports this file before it starts workers


class PageAction(ActionBase):  # type: ignore[misc]
    """An action that runs twice: before hosts are asked, and when they have answered. Changes nothing.

    A subclass has ``UNWELL``, ``prepare``, ``examine`` and ``page``.
    """

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _VALID_ARGS = frozenset({"mode", "report", "roles_folder"})
    UNWELL = ""
    """What the task says when the report has problems."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> Result:
        """Prepare the questions to hosts, or put all answers together."""
        result: Result = super().run(tmp, task_vars)
        roles_folder = Path(self._task.args.get("roles_folder") or ROLES_FOLDER)
        try:
            site = site_of_run(task_vars or {}, roles_folder)
            if self._task.args.get("mode") == "prepare":
                return {**result, "changed": False, **self._prepared(site, roles_folder)}
            report = self._examined(site)
        except SiteError as error:
            # Without an inventory it is not known what right would be.
            return {**result, "failed": True, "refused": True, "msg": said_of(error.problems)}
        Display().display(self.page(report))
        write_report(str(self._task.args.get("report") or ""), report)
        result.update(changed=False, report=report)
        if not report["healthy"]:
            result.update(failed=True, msg=self.UNWELL)
        return result

    def _prepared(self, site: Site, roles_folder: Path) -> Result:
        began = time.time()
        questions, head, warnings = self.prepare(site, roles_folder)
        Notebook(RunFolder()).prepare(questions, {"began": began, **head})
        return {"hosts": len(site.hosts), **({"warnings": warnings} if warnings else {})}

    def _examined(self, site: Site) -> Content:
        notebook = Notebook(RunFolder())
        head = notebook.head()
        began = float(head.get("began") or time.time())
        answers = {name: answer for name, answer in notebook.answers().items() if name in site.hosts}
        started = datetime.datetime.fromtimestamp(began, datetime.UTC).isoformat(timespec="seconds")
        return self.examine(Evidence(site=site, now=time.time(), hosts=answers), head, started, began)

    def prepare(self, site: Site, roles_folder: Path) -> tuple[dict[str, t.Any], Result, list[str]]:
        """Return what each host is to be asked, what ``examine`` gets as ``head``, and warnings."""
        raise NotImplementedError

    def examine(self, evidence: Evidence, head: t.Mapping[str, t.Any], started: str, began: float) -> Content:
        """Return the report.

        Args:
            evidence: what hosts answered.
            head: as ``prepare`` returned it.
            started: when hosts were first asked, in ISO 8601.
            began: the same as Unix time in seconds.
        """
        raise NotImplementedError

    def page(self, report: Content) -> str:
        """Return the report for people."""
        raise NotImplementedError
