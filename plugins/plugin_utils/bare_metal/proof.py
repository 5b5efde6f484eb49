# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Proof that a server was erased: what Ironic reported, kept as JSON beside the site's data."""

from __future__ import annotations

import datetime
import json
import typing as t
from collections.abc import Mapping, Sequence
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.expected import ExpectedServer
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_api import IronicApi
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError

FORMAT = 1
_DISK = ("name", "model", "serial", "wwn", "size", "rotational")
_MOST = 1024


def keep_proof(api: IronicApi, uuid: str, server: ExpectedServer, steps: Sequence[str], folder: Path) -> Path:
    """Write down that a server was erased, once its cleaning has ended well.

    Args:
        api: Ironic.
        uuid: of the node.
        server: as it was expected.
        steps: the clean steps that were asked for, such as ``deploy.erase_devices``.
        folder: for the proof; it is made. One file a server and time, never written over.

    Returns:
        The file; it is on the disk.

    Raises:
        RemoteError: Ironic does not say what was done, or the file cannot be written.
    """
    said = api.cleaned(uuid)
    now = datetime.datetime.now(datetime.UTC)
    content = {
        "format": FORMAT,
        "server": server.name,
        "serial": server.serial,
        "slot": server.slot,
        "node": uuid,
        "written": now.isoformat(timespec="seconds"),
        "asked": list(steps),
        "ironic": {
            "state": said["provision_state"],
            "since": said["provision_updated_at"],
            "driver": said["driver"],
            "deploy_interface": said["deploy_interface"],
            "last_error": said["last_error"],
            "steps": _steps(said["driver_internal_info"]),
            "history": said["history"][:_MOST],
        },
        "disks": _disks(api.inspection(uuid)),
    }
    file = folder / f"{server.name}-{now:%Y%m%dT%H%M%S%f}Z.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_file(file, json.dumps(content, indent=1, sort_keys=True, default=str).encode() + b"\n")
    except OSError as error:
        remedy = "make room or permit it, and run it again: it erases again, and writes the proof"
        raise RemoteError(
            f"it was erased, and the proof {file} cannot be written: {error.strerror}", remedy
        ) from None
    return file


def _steps(said: t.Any) -> list[t.Any]:
    steps = said.get("clean_steps") if isinstance(said, Mapping) else None
    return steps[:_MOST] if isinstance(steps, list) else []


def _disks(inspection: Mapping[str, t.Any] | None) -> list[dict[str, t.Any]]:
    """Return the disks that the server's last inspection has named."""
    inventory = (inspection or {}).get("inventory")
    disks = inventory.get("disks") if isinstance(inventory, Mapping) else None
    found = disks[:_MOST] if isinstance(disks, list) else []
    return [{key: disk.get(key) for key in _DISK} for disk in found if isinstance(disk, Mapping)]
