# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The identification light of a server: what somebody in front of the rack looks for."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.bmc import Bmc, Document
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.errors import Refused, Unproven

ACTIVE, LED = "LocationIndicatorActive", "IndicatorLED"
"""Since 2020, and before; ``Lit`` means that it burns, which some BMCs know only as ``Blinking``."""


def light(bmc: Bmc) -> bool | None:
    """Tell whether the light is on; None when the server has none that can be read.

    Raises:
        BmcError: the BMC cannot be asked.
    """
    found = [state for one in _bearers(bmc) if (state := _state(one)) is not None]
    return any(found) if found else None


def set_light(bmc: Bmc, on: bool) -> bool:
    """Switch the light, and read it back; True when it was another before.

    Raises:
        Refused: the server has no light that can be switched.
        Unproven: the BMC took it, and the light is not as wanted.
        BmcError: the BMC cannot be asked.
    """
    for bearer in _bearers(bmc):
        before = _state(bearer)
        if before is None:
            continue
        if before == on:
            return False
        body: Document = (
            {ACTIVE: on} if isinstance(bearer.get(ACTIVE), bool) else {LED: "Lit" if on else "Off"}
        )
        path = str(bearer["@odata.id"])
        try:
            bmc.patch(path, body, "switch the light")
        except Refused:
            if LED not in body or not on:
                raise
            bmc.patch(path, {LED: "Blinking"}, "switch the light")
        if _state(bmc.get(path)) != on:
            raise Unproven(
                f"{bmc.name}: the BMC took it, and the light is still {'off' if on else 'on'}",
                "look at the server",
            )
        return True
    raise Refused(f"{bmc.name}: the BMC has no light that can be switched", "find the server by its slot")


def _bearers(bmc: Bmc) -> list[Document]:
    system = bmc.system()
    return [system, *bmc.chassis(system)]


def _state(document: Document) -> bool | None:
    if isinstance(document.get(ACTIVE), bool):
        return bool(document[ACTIVE])
    return document[LED] != "Off" if document.get(LED) in ("Lit", "Blinking", "Off") else None
