# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The program that launches jobs for alerts: whether it takes any, and has a token to launch with."""

from __future__ import annotations

import http.client
import ssl
import typing as t
from collections.abc import Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.events import GROUP
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.findings import (
    NOTICE,
    PROBLEM,
    Content,
    Evidence,
    Finding,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import PkiError

PATIENCE_S = 10.0
REFUSED = 401
"""What a request without a token is answered with, by a program that works."""


def ask_alerts(session: Session) -> Content:
    """Return whether alerts are taken; empty where no host of the site takes any.

    Args:
        session: the site and its PKI store.

    Returns:
        ``host``, ``error`` for why it does not answer as it should, ``account`` whether it has a token.
    """
    hosts = session.site.group(GROUP)
    if not hosts:
        return {}
    host = hosts[0]
    said: dict[str, t.Any] = {"host": host.name, "error": "", "account": False}
    try:
        said["account"] = bool(session.store.events.names()["account"])
        trusted = ssl.create_default_context(cadata=session.store.ca("kubernetes").certificate_pem)
        address = host.variables["events_address"] or host.address
        connection = http.client.HTTPSConnection(
            address, host.variables["events_port"], timeout=PATIENCE_S, context=trusted
        )
        try:
            connection.request("GET", "/alerts")
            status = connection.getresponse().status
        finally:
            connection.close()
        if status != REFUSED:
            said["error"] = f"it answers {status} to a request without a token"
    except (OSError, http.client.HTTPException, PkiError) as error:
        said["error"] = str(error).rstrip(".") or type(error).__name__
    return said


def alerts(evidence: Evidence) -> Iterator[Finding]:
    """Whether the program answers, and has what it launches with."""
    said = evidence.alerts
    if not said:
        return
    if said["error"]:
        what = f"no alerts are taken at {said['host']}: {said['error']}"
        yield Finding(PROBLEM, what, f"read its journal: journalctl -u ironspan-events on {said['host']}")
    if not said["account"]:
        yield Finding(NOTICE, "alerts launch nothing: ironspan-events has no token of the controller",
                      "keep one with ironspan awx events-account, and run site.yml")  # fmt: skip
