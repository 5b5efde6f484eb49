# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""All expected servers by what they can be recognised by."""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import lldp
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.expected import ExpectedServer, Nic


class Index:
    """Which server has a serial number, a MAC address, a switch port.

    Attributes:
        serials: serial number to server.
        macs: MAC address to server and port.
        tpms: SHA-256 of a TPM's endorsement key to server.
    """

    def __init__(self, servers: Sequence[ExpectedServer]) -> None:
        self.serials = {server.serial: server for server in servers if server.serial}
        self.macs = {nic.mac: (server, nic) for server in servers for nic in server.nics}
        self.tpms = {server.tpm_ek_sha256: server for server in servers if server.tpm_ek_sha256}
        self._ports: dict[tuple[str, str], list[tuple[ExpectedServer, Nic]]] = {}
        for server in servers:
            for nic in server.nics:
                if nic.switch:
                    key = (nic.switch.lower(), lldp.port_parts(nic.port)[1])
                    self._ports.setdefault(key, []).append((server, nic))

    def declared_at(self, neighbour: lldp.Neighbour) -> tuple[ExpectedServer, Nic] | None:
        """Return which server's port was declared to be cabled to where this cable ends."""
        for switch in sorted(lldp.switch_names(neighbour)):
            for said in neighbour.ports:
                for server, nic in self._ports.get((switch, lldp.port_parts(said)[1]), ()):
                    if lldp.same_port(nic.port, said):
                        return server, nic
        return None
