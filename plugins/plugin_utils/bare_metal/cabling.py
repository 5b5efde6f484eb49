# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Network ports of one server: there, fast enough, and cabled to the switch port that was declared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import lldp
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.expected import ExpectedServer, Nic
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.index import Index
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.measured import Inspection, Port
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.parts import Difference


def compared_ports(
    server: ExpectedServer, inspections: Sequence[Inspection], index: Index
) -> Iterator[Difference]:
    """Yield how the network ports and their cables differ.

    Args:
        server: what was declared.
        inspections: what was measured.
        index: of all servers, to say whose cable or port it is.
    """
    told = [inspection for inspection in inspections if inspection.ports is not None]
    if server.nics and not told:
        yield Difference("network ports", "not measured", "none measured", "inspect it again")
        return
    own = {nic.mac for nic in server.nics}
    for nic in server.nics:
        ports = [port for inspection in told for port in inspection.ports or () if port.mac == nic.mac]
        part = f"port {nic.called}"
        if not ports:
            message = f"no port with MAC address {nic.mac} measured"
            yield Difference(part, "missing", message, "look for the card, or correct the address")
            continue
        yield from _speed(nic, part, ports)
        if nic.switch:
            yield from _cable(server, nic, ports, index)
    seen = {port.mac: port for inspection in told for port in inspection.ports or ()}
    for mac in sorted(seen.keys() - own):
        if mac in index.macs:
            other, nic = index.macs[mac]
            message = f"{mac} was declared as port {nic.called} of {other.name} in {other.slot}"
            remedy = "put the card back there, or correct the addresses"
            yield Difference(f"port {seen[mac].name}", "surplus", message, remedy)


def _speed(nic: Nic, part: str, ports: Sequence[Port]) -> Iterator[Difference]:
    if nic.speed_gbit is None:
        return
    measured = next((port.speed_mbit for port in ports if port.speed_mbit), None)
    if measured is None:
        message = f"{nic.speed_gbit} Gbit/s declared, no speed measured"
        yield Difference(part, "not measured", message, "look for a link, and inspect again")
    elif measured != nic.speed_gbit * 1000:
        message = f"{nic.speed_gbit} Gbit/s declared, {measured / 1000:g} Gbit/s measured"
        yield Difference(part, "differs", message, "look at the card, the cable and the switch's port")


def _cable(server: ExpectedServer, nic: Nic, ports: Sequence[Port], index: Index) -> Iterator[Difference]:
    part = f"cable of port {nic.called}"
    declared = f"{nic.switch} {nic.port} declared"
    neighbours = [port.neighbour for port in ports if port.neighbour]
    if not neighbours:
        dark = any(port.link is False for port in ports)
        message = f"{declared}, {'no link' if dark else 'no switch heard'}"
        remedy = "plug the cable in" if dark else "switch LLDP on at the switch, and inspect again"
        yield Difference(part, "missing" if dark else "not measured", message, remedy)
        return
    for neighbour in neighbours:
        if lldp.is_at(neighbour, nic.switch, nic.port):
            continue
        message, remedy = f"{declared}, {neighbour} measured", f"plug it into {nic.switch} {nic.port}"
        if owner := index.declared_at(neighbour):
            other, theirs = owner
            whose = "this server" if other == server else f"{other.name} in {other.slot}"
            message += f", which is for port {theirs.called} of {whose}"
            remedy = f"exchange the cables of the two ports, or plug it into {nic.switch} {nic.port}"
        yield Difference(part, "cabling", message, remedy)
