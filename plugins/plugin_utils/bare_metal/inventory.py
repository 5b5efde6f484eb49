# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""All files of expected servers together: read, and checked against each other."""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.build import servers_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.expected import ExpectedServer, Nic
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.listing import records_of_yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.lldp import port_parts, same_port
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.mapping import Mapping, read_mapping
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.problems import CellProblem, Findings
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.table import records_of_csv
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.values import rack_group
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import shown

TABLES = (".csv", ".tsv", ".txt")
LISTINGS = (".yml", ".yaml", ".json")
MOST_SERVERS = 20_000
"""Of all files together."""


class Source(t.NamedTuple):
    """A file of expected servers.

    Args:
        file: its path; the ending says what it is.
        data: its bytes.
        mapping: what its columns mean, for somebody else's list.
    """

    file: str
    data: bytes
    mapping: Mapping | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Expected:
    """What the files say.

    Args:
        servers: every server that can be read, in the order of the files.
        problems: everything to correct. With a problem nothing may be done by these servers.
    """

    servers: tuple[ExpectedServer, ...]
    problems: tuple[CellProblem, ...]


def read_expected(sources: Iterable[Source]) -> Expected:
    """Read and check all files of expected servers; whatever they hold, it returns."""
    servers: list[ExpectedServer] = []
    problems: list[CellProblem] = []
    for source in sources:
        found = Findings(source.file)
        ending = Path(source.file).suffix.lower()
        if ending in TABLES:
            records = records_of_csv(source.data, source.mapping, found)
        elif ending in LISTINGS:
            records = records_of_yaml(source.data, found)
        else:
            endings = ", ".join((*TABLES, *LISTINGS))
            found.add(
                0,
                0,
                "",
                f"nothing is known of files that end with '{ending}'",
                f"save it as one of {endings}",
            )
            records = []
        for record in filter(None, records):
            servers += servers_of(record, found)
            if len(servers) > MOST_SERVERS:
                found.add(0, 0, "", f"more than {MOST_SERVERS} servers", "give another run the rest")
                return Expected((), (*problems, *found))
        if not servers and not found:
            found.add(
                0, 0, "", "there is no server in it", "write one line, or one item of servers, for each"
            )
        problems += found
    return Expected(tuple(servers), (*problems, *_twice(servers)))


def load_expected(files: Sequence[str | Path], mapping_file: str | Path | None = None) -> Expected:
    """Read files of expected servers from the disk.

    Args:
        files: paths. With a mapping, the tables among them are somebody else's lists.
        mapping_file: path of the mapping for them.
    """
    problems: list[CellProblem] = []
    mapping: Mapping | None = None
    if mapping_file is not None:
        found = Findings(str(mapping_file))
        data = _bytes_of(mapping_file, found)
        mapping = read_mapping(data, found) if data is not None else None
        problems += found
        if mapping is None:
            return Expected((), tuple(problems))
    sources = []
    for file in files:
        found = Findings(str(file))
        data = _bytes_of(file, found)
        if data is not None:
            table = Path(file).suffix.lower() in TABLES
            sources.append(Source(str(file), data, mapping if table else None))
        problems += found
    read = read_expected(sources)
    return Expected(read.servers, (*problems, *read.problems))


def _bytes_of(file: str | Path, found: Findings) -> bytes | None:
    try:
        return Path(file).expanduser().read_bytes()
    except OSError as error:
        found.add(
            0, 0, "", f"cannot be read: {error.strerror}", "name a file that is there and that you may read"
        )
        return None


def _twice(servers: Sequence[ExpectedServer]) -> Iterator[CellProblem]:
    """Yield what two servers, or two ports of one, cannot both have: at the later one."""
    seen: dict[tuple[str, str], ExpectedServer] = {}
    units: dict[tuple[str, int], ExpectedServer] = {}
    # Groups to the first server in one, and racks (with = in front) to the one that was named.
    racks: dict[str, ExpectedServer] = {}
    ports: dict[tuple[str, str], list[tuple[ExpectedServer, Nic]]] = {}
    for server in servers:
        other = racks.setdefault(rack_group(server.rack), server)
        if other.rack != server.rack and racks.setdefault(f"={server.rack}", server) is server:
            yield _shared(server, "rack", f"the group {rack_group(server.rack)} by rack {server.rack}", other)
        for nic in server.nics:
            at = (nic.switch.lower(), port_parts(nic.port)[1])
            taken = ports.setdefault(at, []) if nic.switch else []
            for owner, one in taken:
                if same_port(one.port, nic.port):
                    yield _shared(server, "switch port", f"switch port {nic.switch} {nic.port}", owner)
                    break
            else:
                taken.append((server, nic))
        for path, value in _marks_of(server):
            if first := seen.get((path, value)):
                yield _shared(server, path, f"{path} {value}", first)
            else:
                seen[path, value] = server
        below: dict[str, ExpectedServer] = {}
        for unit in range(server.position, server.position + server.height):
            first = units.setdefault((server.rack, unit), server)
            if first is not server:
                below[first.name] = first
        for first in below.values():
            yield _shared(server, "position", f"a place in {server.slot}", first)


def _marks_of(server: ExpectedServer) -> Iterator[tuple[str, str]]:
    yield "name", server.name
    yield "bmc_address", server.bmc_address
    if server.serial:
        yield "serial", server.serial
    if server.tpm_ek_sha256:
        yield "tpm_ek_sha256", server.tpm_ek_sha256
    for nic in server.nics:
        yield "mac", nic.mac


def _shared(server: ExpectedServer, path: str, what: str, first: ExpectedServer) -> CellProblem:
    origin = first.origin
    other = "twice" if first is server else f"and so has {first.name} ({shown(origin.file)}:{origin.line})"
    message = f"{server.name} has {what}{' ' if first is server else ', '}{other}"
    here = server.origin
    return CellProblem(here.file, here.line, path, message, "correct one of them", here.column)
