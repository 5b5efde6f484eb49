# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What Ironic has measured in a server, asked for."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_api import IronicApi
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.measured import (
    Inspection,
    Source,
    read_inspection,
)


def inspections_of(
    api: IronicApi, uuid: str, node: Mapping[str, t.Any], *, firmware: bool
) -> list[Inspection]:
    """Return the last inspection of a node; none where it was never inspected.

    Args:
        api: Ironic.
        uuid: of the node.
        node: its fields as they are declared; its interface says how it was measured.
        firmware: ask for versions of its firmware too, which is one request more.

    Raises:
        RemoteError: Ironic does not say.
    """
    said = api.inspection(uuid)
    source: Source = "in band" if node.get("inspect_interface") == "agent" else "out of band"
    if said is None:
        return []
    return [read_inspection(source, said, api.firmware(uuid) if firmware else None)]
