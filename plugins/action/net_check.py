# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Says what the network between a site's hosts is like. Changes nothing."""

from __future__ import annotations

import datetime
import json
import time
import typing as t
from pathlib import Path

from ansible import constants
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.errors import ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.findings import Evidence
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.notebook import Notebook
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netcheck.page import page
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netcheck.questions import questions
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netcheck.report import examine
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.run_folder import RunFolder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.ansible_run import site_of_run
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import SiteError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import ROLES_FOLDER

Result = dict[str, t.Any]
PATIENCE_S = 3.0
"""How long a request to the API is sent again; somebody is waiting for this command."""


class ActionModule(ActionBase):  # type: ignore[misc]
    """The action ``ironspan.hybrid.net_check``."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _VALID_ARGS = frozenset({"mode", "report", "roles_folder"})

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> Result:
        """Decide what hosts are to be asked, or put their answers together."""
        result: Result = super().run(tmp, task_vars)
        roles_folder = Path(self._task.args.get("roles_folder") or ROLES_FOLDER)
        try:
            site = site_of_run(task_vars or {}, roles_folder)
        except SiteError as error:
            return {**result, "failed": True, "msg": f"The inventory has problems.\n{error}"}
        if self._task.args.get("mode") == "prepare":
            return {**result, "changed": False, **_prepare(site)}
        report = _examine(site)
        Display().display(page(report))
        file = self._task.args.get("report")
        if file:
            write_file(Path(str(file)).expanduser(), json.dumps(report, indent=2).encode() + b"\n")
        result.update(changed=False, report=report)
        if not report["healthy"]:
            result.update(failed=True, msg="The network is not well; the page above says what mends it.")
        return result


def _prepare(site: Site) -> Result:
    began = time.time()
    networks, notes = _pod_networks(site)
    Notebook(RunFolder()).prepare(questions(site, networks), {"began": began, "notes": notes})
    return {"hosts": len(site.hosts), **({"warnings": notes} if notes else {})}


def _pod_networks(site: Site) -> tuple[dict[str, str], list[str]]:
    """Return each node's part of the pod network, and why it is not known."""
    try:
        nodes = Session(site, constants.DEFAULT_LOCAL_TMP, PATIENCE_S).api(PATIENCE_S).get("/api/v1/nodes")
        found = {node["metadata"]["name"]: node["spec"].get("podCIDR") for node in nodes["items"]}
        return {name: str(network) for name, network in found.items() if network}, []
    except (ClusterError, PkiError) as error:
        return {}, [f"the ways between pods were not tried: {error.message.rstrip('.')}"]
    except (KeyError, TypeError, ValueError) as error:
        return {}, [f"the ways between pods were not tried: the API answers strangely: {error}"]


def _examine(site: Site) -> Result:
    notebook = Notebook(RunFolder())
    head = notebook.head()
    began = float(head.get("began") or time.time())
    evidence = Evidence(
        site=site,
        now=time.time(),
        hosts={name: answer for name, answer in notebook.answers().items() if name in site.hosts},
    )
    started = datetime.datetime.fromtimestamp(began, datetime.UTC).isoformat(timespec="seconds")
    return examine(evidence, started, time.time() - began, head.get("notes") or ())
