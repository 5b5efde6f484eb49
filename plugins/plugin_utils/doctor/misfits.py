# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""One host whose answer cannot be read ends no report: it is named, and the others are judged."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.findings import Content, Evidence

NOT_AS_EXPECTED = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What reading an answer raises that does not have the module's form."""
WHY = "its answer does not have the module's form; look into what runs there"


def examined(evidence: Evidence, examine: Callable[[Evidence], Content]) -> Content:
    """Return the report; hosts that it cannot be made with stand in it as not looked at.

    Args:
        evidence: everything that was asked. What hosts answered is theirs, so anything may be in it.
        examine: makes the report, and has no other effect.

    Raises:
        Exception: what ``examine`` raises without any host's answer too.
    """
    try:
        return examine(evidence)
    except NOT_AS_EXPECTED:
        hosts = {
            name: answer if _fits(name, evidence, examine) else {"error": WHY}
            for name, answer in evidence.hosts.items()
        }
        return examine(dataclasses.replace(evidence, hosts=hosts))


def _fits(name: str, evidence: Evidence, examine: Callable[[Evidence], Content]) -> bool:
    try:
        examine(dataclasses.replace(evidence, hosts={name: evidence.hosts[name]}))
    except NOT_AS_EXPECTED:
        return False
    return True
