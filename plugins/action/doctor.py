# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Says on one page what is wrong with a site, and what mends it. Changes nothing."""

from __future__ import annotations

import concurrent.futures
import datetime
import json
import time
import typing as t
from pathlib import Path

from ansible import constants
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.etcd import Member
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor import ask, table
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.findings import Evidence
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.network_checks import probes_for
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.notebook import Notebook
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.page import page
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.prepare import renderer_for
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.run_folder import RunFolder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.ansible_run import site_of_run
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import SiteError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import ROLES_FOLDER

Result = dict[str, t.Any]


class ActionModule(ActionBase):  # type: ignore[misc]
    """The action ``ironspan.hybrid.doctor``."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _VALID_ARGS = frozenset({"mode", "report", "roles_folder"})

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> Result:
        """Prepare the questions to hosts, or put all answers together."""
        result: Result = super().run(tmp, task_vars)
        roles_folder = Path(self._task.args.get("roles_folder") or ROLES_FOLDER)
        preparing = self._task.args.get("mode") == "prepare"
        try:
            site = site_of_run(task_vars or {}, roles_folder)
            if preparing:
                return {**result, "changed": False, **_prepare(site, roles_folder)}
            report = _examine(site)
        except SiteError as error:
            # Without an inventory it is not known what right would be.
            return {**result, "failed": True, "msg": f"The inventory has problems.\n{error}"}
        Display().display(page(report))
        file = self._task.args.get("report")
        if file:
            write_file(Path(str(file)).expanduser(), json.dumps(report, indent=2).encode() + b"\n")
        result.update(changed=False, report=report)
        if not report["healthy"]:
            result.update(failed=True, msg="The site is not well; the page above says what mends it.")
        return result


def _prepare(site: Site, roles_folder: Path) -> Result:
    """Render the documents, if that is possible, and decide whom each host probes."""
    began = time.time()
    why = ""
    try:
        renderer, _authorities = renderer_for(site, roles_folder, make=False)
        RunFolder().write(site, renderer)
    except SiteError as error:
        why = str(error).splitlines()[0]
    except PkiError as error:
        why = str(error)
    Notebook(RunFolder()).prepare(probes_for(site), {"began": began, "no_documents": why})
    return {"hosts": len(site.hosts), **({"warnings": [f"No documents: {why}"]} if why else {})}


def _examine(site: Site) -> Result:
    notebook = Notebook(RunFolder())
    head = notebook.head()
    began = float(head.get("began") or time.time())
    session = Session(site, constants.DEFAULT_LOCAL_TMP, ask.PATIENCE_S)
    controller = ask.look_here(session, str(head.get("no_documents") or ""))
    api: Result = {"error": "this site was not built yet"}
    members: list[Member] = []
    store_error = ""
    if controller.built:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            asked = pool.submit(ask.ask_api, session)
            members, store_error = ask.ask_store(session)
            api = asked.result()
    evidence = Evidence(
        site=site,
        now=time.time(),
        hosts={name: answer for name, answer in notebook.answers().items() if name in site.hosts},
        api=api,
        members=members,
        store_error=store_error,
        controller=controller,
    )
    started = datetime.datetime.fromtimestamp(began, datetime.UTC).isoformat(timespec="seconds")
    return table.examine(evidence, started, time.time() - began)
