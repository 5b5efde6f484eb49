# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Network services of a BMC: which are on, and those switched off that nobody needs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.bmc import Bmc, Document
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.errors import Refused, Unproven, plain

CLOSED = ("IPMI", "SNMP", "Telnet", "HTTP", "SSDP")
"""What is switched off where nothing else is said. IPMI 2.0 hands the hash of a password to whoever asks
(RAKP); SNMP v1 and v2, Telnet and HTTP send passwords in clear; SSDP tells everybody that it is there."""
KNOWN = (*CLOSED, "SSH", "VirtualMedia", "KVMIP", "RDP", "RFB", "mDNS", "FTP", "DHCP", "DHCPv6", "NTP")
"""Properties of the schema ManagerNetworkProtocol that have ``ProtocolEnabled``, less HTTPS: by it one speaks
to the BMC at all."""


def enabled(bmc: Bmc) -> dict[str, bool]:
    """Return which services are on, by name, of those that the BMC knows.

    Raises:
        BmcError: it cannot be asked.
    """
    found: dict[str, bool] = {}
    for document in _documents(bmc):
        for name in KNOWN:
            value = document.get(name)
            if isinstance(value, dict) and isinstance(value.get("ProtocolEnabled"), bool):
                found[name] = found.get(name, False) or value["ProtocolEnabled"]
    return found


def close(bmc: Bmc, names: Collection[str]) -> list[str]:
    """Switch services off, and read back that they are; what the BMC does not have counts as off.

    Args:
        bmc: the BMC.
        names: those to switch off, as ``KNOWN`` writes them.

    Returns:
        Those that were on.

    Raises:
        Refused: the BMC cannot switch one off.
        Unproven: it took it, and one is still on.
        BmcError: it cannot be asked.
    """
    closed: list[str] = []
    for document in _documents(bmc):
        on = [name for name in names if name in KNOWN and _is_on(document, name)]
        # One at a time: many BMCs refuse the whole change for the one service that they cannot switch.
        for name in on:
            bmc.patch(str(document["@odata.id"]), {name: {"ProtocolEnabled": False}}, f"switch {name} off")
        closed += on
    left = [name for name, is_on in enabled(bmc).items() if is_on and name in names]
    if left:
        raise Unproven(
            f"{bmc.name}: the BMC took it, and this is still on: {', '.join(left)}",
            "some BMCs need a restart for that; if it stays so, block the ports on the management network",
        )
    return closed


def _documents(bmc: Bmc) -> Sequence[Document]:
    paths = [
        str(link["@odata.id"])
        for manager in bmc.managers()
        if isinstance(link := manager.get("NetworkProtocol"), dict) and link.get("@odata.id")
    ]
    if not paths:
        raise Refused(
            f"{bmc.name}: the BMC ({plain(bmc.root.get('Product') or 'of an unknown product')}) does not say "
            "which network services it has",
            "leave bare_metal_bmc_protocols_off empty for it, and block the ports on the management network",
        )
    return [bmc.get(path) for path in paths]


def _is_on(document: Document, name: str) -> bool:
    value = document.get(name)
    return isinstance(value, dict) and value.get("ProtocolEnabled") is True
