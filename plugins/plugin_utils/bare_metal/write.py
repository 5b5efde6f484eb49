# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Expected servers as files again; what is written is read back as the same servers."""

from __future__ import annotations

import csv
import dataclasses
import io
import typing as t
from collections.abc import Sequence

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import schema
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.expected import ExpectedServer

_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def as_csv(servers: Sequence[ExpectedServer]) -> bytes:
    """Return servers as CSV in UTF-8, with the columns that any of them needs.

    No cell can be a formula: every text of a server begins with a letter or a digit.
    """
    flat = [_flat(server) for server in servers]
    needed = {key for row in flat for key in row}
    numbered = [
        *(f"nic{number}_{field}" for number in range(1, schema.MOST_NICS + 1) for field in schema.NIC),
        *(f"disk{number}_{field}" for number in range(1, schema.MOST_DISKS + 1) for field in schema.DISK),
    ]
    columns = [*schema.PLAIN, *numbered, *sorted(key for key in needed if key.startswith("firmware_"))]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, [key for key in columns if key in needed or key in schema.REQUIRED])
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue().encode()


def as_yaml(servers: Sequence[ExpectedServer]) -> bytes:
    """Return servers as YAML in UTF-8."""
    content = {"servers": [_nested(server) for server in servers]}
    text = yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return str(text).encode()


def _declared(part: t.Any) -> dict[str, t.Any]:
    """Return the fields of a part that are declared."""
    fields = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    return {name: value for name, value in fields.items() if value not in ("", None)}


def _nested(server: ExpectedServer) -> dict[str, t.Any]:
    plain = {name: value for name, value in _declared(server).items() if name in schema.PLAIN}
    lists: dict[str, t.Any] = {
        "nics": [_declared(nic) for nic in server.nics],
        "disks": [_declared(disks) for disks in server.disks],
        "firmware": dict(server.firmware),
    }
    return {**plain, **{name: value for name, value in lists.items() if value}}


def _flat(server: ExpectedServer) -> dict[str, str]:
    flat = {name: str(value) for name, value in _declared(server).items() if name in schema.PLAIN}
    for prefix, parts in (("nic", server.nics), ("disk", server.disks)):
        for number, part in enumerate(parts, start=1):
            flat |= {f"{prefix}{number}_{name}": str(value) for name, value in _declared(part).items()}
    return flat | {f"firmware_{component}": version for component, version in server.firmware}
