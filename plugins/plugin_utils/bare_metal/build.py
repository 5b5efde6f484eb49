# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Records of cells become servers: ranges are expanded, values read, and what belongs together is checked."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import schema, values
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.expected import (
    Disks,
    ExpectedServer,
    Nic,
    Origin,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.problems import (
    Cell,
    Findings,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ranges import RangeError, expanded
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.table import Record

_RANGED = ("name", "bmc_address", "rack", "position", "serial", "nvlink_domain", "switch", "port")
"""What may be a range; a switch and port of each network port too."""
_BAD = object()


def servers_of(record: Record, found: Findings) -> list[ExpectedServer]:
    """Return the servers that a record stands for; none, with problems, when it cannot be read.

    Args:
        record: what is written, by key.
        found: takes the problems.
    """
    before = len(found)
    origin = next(iter(record.values()))
    for key in schema.REQUIRED:
        if key not in record:
            place = origin._replace(path=key)
            found.at(place, "is not there", f"write the server's {key}")
    lists = {key: texts for key, cell in record.items() if (texts := _texts(key, cell, found)) is not None}
    counts = {key: len(texts) for key, texts in lists.items() if len(texts) > 1}
    if len({*counts.values()}) > 1:
        shown = ", ".join(f"{key} {count}" for key, count in counts.items())
        at = record[next(iter(counts))]
        found.at(at, f"the ranges of one server differ in length: {shown}", "write ranges of the same length")
    if len(found) > before:
        # What the cells themselves say is still wrong is said in the same run.
        for key, texts in lists.items():
            _read(key, texts[0], record[key], found)
        return []
    total = max(counts.values(), default=1)
    servers: list[ExpectedServer] = []
    for number in range(total):
        read = {
            key: _read(key, texts[number if len(texts) > 1 else 0], record[key], found)
            for key, texts in lists.items()
        }
        if len(found) == before:
            servers.append(_server(read, record, found))
        if len(found) > before:
            return []
    return servers


def _texts(key: str, cell: Cell, found: Findings) -> list[str] | None:
    """Return what a cell stands for: one text, or those of its ranges. None when it has a problem."""
    try:
        text = values.checked(cell.text)
        ranged = key in _RANGED or key.endswith(("_switch", "_port"))
        return expanded(text) if ranged and "[" in text else [text]
    except (values.Refused, RangeError) as problem:
        found.at(cell, problem.message, problem.remedy)
        return None


def _read(key: str, text: str, cell: Cell, found: Findings) -> t.Any:
    reader = schema.reader_of(key)
    try:
        return reader(text) if reader else _BAD
    except values.Refused as refused:
        found.at(cell, refused.message, refused.remedy)
        return _BAD


def _server(read: Mapping[str, t.Any], record: Record, found: Findings) -> ExpectedServer:
    plain = {key: value for key, value in read.items() if key in schema.PLAIN}
    parts: dict[str, dict[int, dict[str, t.Any]]] = {"nic": {}, "disk": {}}
    for key, value in read.items():
        if part := schema.part_of(key):
            parts[part.kind].setdefault(part.number, {})[part.field] = value
    firmware = {
        key.removeprefix("firmware_"): value for key, value in read.items() if key.startswith("firmware_")
    }
    _check_together(plain, parts, record, found)
    complete = {
        kind: [
            fields for _, fields in sorted(items.items()) if set(schema.REQUIRED_OF[kind]) <= fields.keys()
        ]
        for kind, items in parts.items()
    }
    first = record["name"]
    return ExpectedServer(
        **plain,
        nics=tuple(Nic(**fields) for fields in complete["nic"]),
        disks=tuple(Disks(**fields) for fields in complete["disk"]),
        firmware=tuple(sorted(firmware.items())),
        origin=Origin(found.file, first.line, first.column),
    )


def _check_together(
    plain: Mapping[str, t.Any],
    parts: Mapping[str, Mapping[int, Mapping[str, t.Any]]],
    record: Record,
    found: Findings,
) -> None:
    """Record what is wrong although every value for itself is right."""
    for kind, items in parts.items():
        for number, fields in items.items():
            for field in schema.REQUIRED_OF[kind]:
                if field not in fields:
                    at = record[f"{kind}{number}_{next(iter(fields))}"]._replace(
                        path=f"{kind}{number}_{field}"
                    )
                    found.at(at, "is not there", f"write it, or leave all of {kind}{number} out")
    for number, fields in parts["nic"].items():
        for there, lacking in (("switch", "port"), ("port", "switch")):
            if there in fields and lacking not in fields:
                at = record[f"nic{number}_{there}"]
                found.at(at, f"a {there} without a {lacking}", f"write nic{number}_{lacking} too, or neither")
    names: dict[str, int] = {}
    for number, fields in parts["nic"].items():
        if "name" in fields and (first := names.setdefault(fields["name"], number)) != number:
            at = record[f"nic{number}_name"]
            found.at(at, f"is the name of nic{first} too", "give each port a name of its own, or none")
    own = values.rack_group(plain["rack"])
    if plain.get("group", "").startswith("rack_") and plain["group"] != own:
        found.at(record["group"], f"is another rack's, and its own makes the group {own}", "leave it out")
    if plain.get("gpu_count") and "gpu_model" not in plain:
        found.at(
            record["gpu_count"], "a number of GPUs without their model", "write gpu_model, for example H100"
        )
    if "gpu_model" in plain and plain.get("gpu_count") == 0:
        found.at(
            record["gpu_count"], "is 0, and gpu_model names one", "leave gpu_model out, or write how many"
        )
    if "gpu_model" in plain and "gpu_count" not in plain:
        found.at(
            record["gpu_model"], "a model of GPUs without their number", "write gpu_count, for example 8"
        )
    top = plain["position"] + plain.get("height", 1) - 1
    if top > values.HIGHEST_UNIT:
        at = record.get("height", record["position"])
        remedy = f"write the lowest unit as position; the highest is {values.HIGHEST_UNIT}"
        found.at(at, f"reaches up to unit {top}", remedy)
