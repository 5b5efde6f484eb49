# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Says on one page what is wrong with a site, and what fixes it. Changes nothing."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import time
import typing as t
from pathlib import Path

from ansible import constants
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.page import PageAction, Result
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.etcd import Member
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor import ask, table
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.alert_checks import ask_alerts
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.estate_checks import has_estate
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.findings import Content, Evidence
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.ironic_checks import ask_ironic
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.misfits import examined
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.network_checks import probes_for
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.page import page
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.prepare import renderer_for
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.run_folder import RunFolder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import SiteError


class ActionModule(PageAction):
    """The action ``ironspan.hybrid.doctor``."""

    UNWELL = "The site is not well; the page above says what fixes it."

    def prepare(self, site: Site, roles_folder: Path) -> tuple[dict[str, t.Any], Result, list[str]]:
        """Render the documents, if that is possible, and decide whom each host probes."""
        why = ""
        try:
            renderer, _authorities = renderer_for(site, roles_folder, make=False)
            RunFolder().write(site, renderer)
        except SiteError as error:
            why = str(error).splitlines()[0]
        except PkiError as error:
            why = str(error)
        return probes_for(site), {"no_documents": why}, [f"No documents: {why}"] if why else []

    def examine(self, evidence: Evidence, head: t.Mapping[str, t.Any], started: str, began: float) -> Content:
        """Ask the cluster and etcd too, and put all answers together."""
        session = Session(evidence.site, constants.DEFAULT_LOCAL_TMP, ask.PATIENCE_S)
        controller = ask.look_here(session, str(head.get("no_documents") or ""))
        api: Result = {"error": "this site was not built yet"}
        members: list[Member] = []
        etcd_error = ""
        ironic: Result = {}
        alerts: Result = {}
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            asked_of_azure = pool.submit(_estate, evidence.site)
            if controller.built:
                asked = pool.submit(ask.ask_api, session)
                asked_of_servers = pool.submit(ask_ironic, session)
                asked_of_alerts = pool.submit(ask_alerts, session)
                members, etcd_error = ask.ask_etcd(session)
                api, ironic, alerts = asked.result(), asked_of_servers.result(), asked_of_alerts.result()
            estate = asked_of_azure.result()
        whole = dataclasses.replace(
            evidence,
            now=time.time(),
            api=api,
            members=members,
            etcd_error=etcd_error,
            events=ask.ask_events(session) if members else (),
            controller=controller,
            ironic=ironic,
            alerts=alerts,
            estate=estate,
            fsync=ask.ask_fsync(session, members),
        )
        return examined(whole, lambda known: table.examine(known, started, time.time() - began))

    def page(self, report: Content) -> str:
        """Return the report for people."""
        return page(report)


def _estate(site: Site) -> Result:
    if not has_estate(site):
        return {}
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.estate_ask import ask_estate

    return ask_estate(site)
