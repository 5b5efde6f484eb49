# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Expected servers as YAML or JSON: ``servers``, and ``defaults`` for what they share."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import schema
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.csv_cells import decoded
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.problems import Findings, quoted
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.table import Record
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.tree import Node, scalar, tree

MOST_ITEMS = 20_000
_KEYS = (*schema.PLAIN, "nics", "disks", "firmware")


def records_of_yaml(data: bytes, found: Findings) -> list[Record]:
    """Return what a YAML file says, one record an item of ``servers``.

    Args:
        data: the file's bytes, in UTF-8.
        found: takes the problems.
    """
    text = decoded(data, "", found)
    root = tree(text, found) if text is not None else None
    if root is None:
        return []
    top = root.mapping(found, "", ("servers", "defaults"))
    if "servers" not in top:
        found.add(root.line, root.column, "servers", "is not there", "write servers: and a list below it")
        return []
    defaults = _record(top["defaults"], "defaults", found) if "defaults" in top else {}
    records = []
    for index, node in enumerate(top["servers"].items(found, "servers", MOST_ITEMS)):
        path = f"servers[{index}]"
        if node.is_empty or not node.is_mapping:
            found.add(node.line, node.column, path, "is not a mapping", "write keys and values: name: gpu-1")
            continue
        record = _record(node, path, found)
        # A server's own list replaces the default one as a whole.
        own = {part.kind for key in record if (part := schema.part_of(key))}
        for key, cell in defaults.items():
            part = schema.part_of(key)
            if key not in record and (part is None or part.kind not in own):
                record[key] = cell
        records.append(record)
    return records


def _record(node: Node, path: str, found: Findings) -> Record:
    record: Record = {}
    for key, value in node.mapping(found, path, _KEYS).items():
        here = f"{path}.{key}"
        if key == "firmware":
            for component, version in value.mapping(found, here, None).items():
                called = f"{here}.{quoted(component)}"
                if not schema.COMPONENT.fullmatch(component):
                    remedy = "write small letters, digits, . _ -"
                    found.add(version.line, version.column, called, "is not a name of a component", remedy)
                elif near := schema.meant(component):
                    found.add(
                        version.line, version.column, called, "no component is called so", f"write {near}"
                    )
                elif cell := scalar(version, found, called):
                    record[f"firmware_{component}"] = cell
        elif key in ("nics", "disks"):
            fields, most = (
                (schema.NIC, schema.MOST_NICS) if key == "nics" else (schema.DISK, schema.MOST_DISKS)
            )
            for index, item in enumerate(value.items(found, here, most)):
                for field, node_ in item.mapping(found, f"{here}[{index}]", tuple(fields)).items():
                    if cell := scalar(node_, found, f"{here}[{index}].{field}"):
                        record[f"{key[:-1]}{index + 1}_{field}"] = cell
        elif cell := scalar(value, found, here):
            record[key] = cell
    return record
