# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Says what the network between a site's hosts is like. Changes nothing."""

from __future__ import annotations

import time
import typing as t
from pathlib import Path

from ansible import constants
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.page import PageAction, Result
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.findings import Content, Evidence
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.misfits import examined
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netcheck.page import page
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netcheck.questions import questions
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netcheck.report import examine
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site

PATIENCE_S = 3.0
"""How long a request to the API is sent again; somebody is waiting for this command."""


class ActionModule(PageAction):
    """The action ``ironspan.hybrid.net_check``."""

    UNWELL = "The network is not well; the page above says what fixes it."

    def prepare(self, site: Site, roles_folder: Path) -> tuple[dict[str, t.Any], Result, list[str]]:
        """Decide what hosts are to be asked."""
        networks, notes = _pod_networks(site)
        return questions(site, networks), {"notes": notes}, notes

    def examine(self, evidence: Evidence, head: t.Mapping[str, t.Any], started: str, began: float) -> Content:
        """Put the answers together."""
        notes, seconds = head.get("notes") or (), time.time() - began
        return examined(evidence, lambda known: examine(known, started, seconds, notes))

    def page(self, report: Content) -> str:
        """Return the report for people."""
        return page(report)


def _pod_networks(site: Site) -> tuple[dict[str, str], list[str]]:
    """Return each node's part of the pod network, and why it is not known."""
    if site.cni != "flannel":
        return {}, ["the ways between pods were not tried: their tunnel has an address with flannel only"]
    try:
        nodes = Session(site, constants.DEFAULT_LOCAL_TMP, PATIENCE_S).api(PATIENCE_S).get("/api/v1/nodes")
        found = {node["metadata"]["name"]: node["spec"].get("podCIDR") for node in nodes["items"]}
        return {name: str(network) for name, network in found.items() if network}, []
    except (ClusterError, PkiError) as error:
        return {}, [f"the ways between pods were not tried: {error.message.rstrip('.')}"]
    except (KeyError, TypeError, ValueError) as error:
        return {}, [f"the ways between pods were not tried: the API answers strangely: {error}"]
