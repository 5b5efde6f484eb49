# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What was declared against what was measured: from an expected server and its inspections to findings.

Pure functions. A server without a finding is what was declared, as far as it was declared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import parts
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.cabling import compared_ports
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.expected import ExpectedServer
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.findings import Finding, Kind
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.index import Index
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.measured import Inspection

Usual = Mapping[tuple[str, int], frozenset[str]]
"""(Model of a server, number of its GPUs) to the PCI addresses at which the complete ones have them."""


def compare_all(
    expected: Sequence[ExpectedServer], measured: Mapping[str, Sequence[Inspection]]
) -> list[Finding]:
    """Compare a whole site.

    Args:
        expected: every server that is expected.
        measured: name of a server to its inspections. A name that nobody expects is a finding.

    Returns:
        The findings, in the order of the servers.
    """
    index = Index(expected)
    usual = _usual_addresses(expected, measured)
    shared = _shared_tpms(expected, measured)
    findings = [
        finding
        for server in expected
        for finding in compare(server, measured.get(server.name, ()), index, usual, shared.get(server.name))
    ]
    for name in sorted(measured.keys() - {server.name for server in expected}):
        remedy = "declare it, or take it out of Ironic"
        findings.append(Finding(name, "?", "server", "surplus", "is in no file of expected servers", remedy))
    return findings


def compare(
    server: ExpectedServer,
    inspections: Sequence[Inspection],
    index: Index,
    usual: Usual | None = None,
    others: Mapping[str, str] | None = None,
) -> list[Finding]:
    """Compare one server.

    Args:
        server: what was declared.
        inspections: what was measured in it, the more trusted first (in band, out of band).
        index: of all servers that are expected, to say which one this is instead.
        usual: where other servers of its model have their GPUs, to say which slot is empty.
        others: SHA-256 of a TPM's endorsement key to another server in which it was measured.

    Returns:
        What differs. When it is another server, only that: its parts say nothing about this one.
    """

    def finding(part: str, kind: Kind, message: str, remedy: str) -> Finding:
        return Finding(server.name, server.slot, part, kind, message, remedy)

    if not inspections:
        return [finding("server", "not measured", "was not inspected", "inspect it")]
    found = {
        finding(
            "inspection",
            "unreadable",
            f"{inspection.source}, this cannot be read: {what}",
            "inspect it again",
        )
        for inspection in inspections
        for what in inspection.unreadable
    }
    identity = [finding(*difference) for difference in _identity(server, inspections, index)]
    if any(one.kind == "wrong server" for one in identity):
        return sorted({*identity, *found})
    differences: Iterable[parts.Difference] = (
        *parts.compared_gpus(
            server, inspections, (usual or {}).get((server.model, server.gpu_count or 0), frozenset())
        ),
        *parts.compared_memory(server, inspections),
        *parts.compared_disks(server, inspections),
        *parts.compared_firmware(server, inspections),
        *parts.compared_tpm(server, inspections, index, others or {}),
        *compared_ports(server, inspections, index),
    )
    return sorted({*identity, *found, *(finding(*difference) for difference in differences)})


def _identity(
    server: ExpectedServer, inspections: Sequence[Inspection], index: Index
) -> Iterator[parts.Difference]:
    """Yield whether this is the server that was declared."""
    serials = {inspection.serial for inspection in inspections if inspection.serial}
    others = {
        other.name: other for serial in serials if (other := index.serials.get(serial)) and other != server
    }
    if not others:
        own = {nic.mac for nic in server.nics}
        seen = {port.mac for inspection in inspections for port in inspection.ports or ()}
        if own and not own & seen:
            others = {index.macs[mac][0].name: index.macs[mac][0] for mac in seen if mac in index.macs}
    for other in others.values():
        yield parts.Difference(
            "server",
            "wrong server",
            f"this is {other.name}, which belongs into {other.slot}",
            f"put {other.name} there, or exchange the two BMC addresses in the file",
        )
    if others or not server.serial:
        return
    if not serials:
        yield parts.Difference(
            "serial", "not measured", f"{server.serial} declared, none measured", "read the label"
        )
    for serial in sorted(serials - {server.serial}):
        yield parts.Difference(
            "serial",
            "differs",
            f"{server.serial} declared, {serial} measured, which nobody declared",
            "look which server is mounted there, and correct the file or the rack",
        )


def _usual_addresses(
    expected: Sequence[ExpectedServer], measured: Mapping[str, Sequence[Inspection]]
) -> Usual:
    """Return where the complete servers of each model have their GPUs, if at least two agree."""
    seen: dict[tuple[str, int], list[frozenset[str]]] = {}
    for server in expected:
        for inspection in measured.get(server.name, ()):
            addresses = frozenset(gpu.address for gpu in inspection.gpus or () if gpu.address)
            if server.gpu_count and server.model and len(addresses) == server.gpu_count:
                seen.setdefault((server.model, server.gpu_count), []).append(addresses)
    return {key: sets[0] for key, sets in seen.items() if len(sets) > 1 and len({*sets}) == 1}


def _shared_tpms(
    expected: Sequence[ExpectedServer], measured: Mapping[str, Sequence[Inspection]]
) -> dict[str, dict[str, str]]:
    """Return the TPMs that were measured in several servers: of each of these, with another one of them."""
    seen: dict[str, list[str]] = {}
    for server in expected:
        for tpm in sorted({one.tpm for one in measured.get(server.name, ()) if one.tpm}):
            seen.setdefault(tpm, []).append(server.name)
    found: dict[str, dict[str, str]] = {}
    for tpm, names in seen.items():
        for name in names[1:]:
            found.setdefault(name, {})[tpm] = names[0]
            found.setdefault(names[0], {}).setdefault(tpm, name)
    return found
