# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What operations ask of one BMC: answers for programs and for people."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.common import CONSENT
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish import accounts, protocols
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.bmc import Bmc, Document
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.errors import BmcError, Refused
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.light import light as light_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.light import set_light
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.log import entries
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.power import (
    GRACEFUL_S,
    ON,
    WITHIN_S,
    Wanted,
    bring_power,
    read_power,
)


class Answer(t.NamedTuple):
    """What a BMC said: for programs, and in lines for people."""

    content: Document
    lines: list[str]


def insist_on_consent(wanted: str, *, allowed: bool) -> None:
    """Refuse to take the power from a server that nobody consented to.

    Raises:
        BmcError: consent is missing.
    """
    if wanted != "on" and not allowed:
        raise BmcError(
            f"power {wanted} stops whatever runs on the servers; nothing was asked of them",
            f"drain their nodes, then {CONSENT}",
        )


def show(bmc: Bmc) -> Answer:
    """Return who answers, and what is on."""
    identity = bmc.identity()
    content: Document = {
        **dataclasses.asdict(identity),
        "power_read": str(read_power(bmc)),
        "light": light_of(bmc),
        "other_accounts": accounts.others(bmc),
    }
    try:
        content["services"] = protocols.enabled(bmc)
    except Refused as error:
        content["services"] = {}
        content["note"] = str(error)
    on = ", ".join(name for name, is_on in content["services"].items() if is_on) or "none that is known"
    versions = f"BIOS {identity.bios or 'unknown'}, BMC {identity.bmc or 'unknown'}"
    return Answer(
        content,
        [
            f"{identity.maker} {identity.model}, serial number {identity.serial}, {versions}".strip(),
            f"power: {content['power_read']}; next start from {identity.boot or 'its usual device'}; "
            f"light {'on' if content['light'] else 'off'}",
            f"services beside HTTPS: {on}; other accounts: {', '.join(content['other_accounts']) or 'none'}",
        ],
    )


def log(bmc: Bmc, most: int, worse_than: str) -> Answer:
    """Return what was logged, the newest last."""
    found = entries(bmc, most, worse_than)
    content = {"entries": [dataclasses.asdict(entry) for entry in found]}
    lines = [f"{entry.time or '(no time)'} {entry.severity} {entry.message}" for entry in found]
    return Answer(content, lines or ["nothing"])


def light(bmc: Bmc, on: bool, check: bool = False) -> Answer:
    """Switch the light; in a check only say whether it would be."""
    changed = light_of(bmc) != on if check else set_light(bmc, on)
    said = f"light {'on' if on else 'off'}" + ("" if changed else " already")
    return Answer({"changed": changed, "light": on}, [said])


def power(bmc: Bmc, wanted: Wanted, check: bool = False) -> Answer:
    """Switch the power and prove it; in a check only say how it is."""
    before = read_power(bmc)
    if check:
        changed = wanted == "cycle" or not before.proves(ON if wanted == "on" else "Off")
        return Answer({"changed": changed, "before": str(before)}, [f"is: {before}"])
    bmc.extend(2 * WITHIN_S + GRACEFUL_S)
    report = bring_power(bmc, wanted)
    content = {
        "changed": report.changed,
        "before": str(report.before),
        "after": str(report.after),
        "seconds": round(report.seconds, 1),
    }
    return Answer(content, [f"was: {report.before}; is: {report.after} ({report.seconds:.0f} s)"])
