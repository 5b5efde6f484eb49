# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The emulated Azure as a part of a lab: its processes listen in the Azure side's router.

    rack hosts == WAN == router (private endpoint .253, metadata 169.254.169.254) -- bridge -- Azure hosts

So a cut WAN cuts the racks off from it, and the instance metadata is where Azure has it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ironspan.lab import processes
from ironspan.lab.azure import client, install, launch, settings
from ironspan.lab.azure.config import Config, state_folder
from ironspan.lab.commands import run
from ironspan.lab.errors import LabError
from ironspan.lab.layout import Layout
from ironspan.lab.state import Resource

AZURITE, PROXY = "azurite", "azure"
#: The port of an Arc machine's own agent; the lab's is beside the store.
ARC_PORT = 40342
_AZURITE_PORT = 10000


def resources() -> list[Resource]:
    """What `start` starts."""
    return [Resource("process", AZURITE), Resource("process", PROXY)]


def configuration(layout: Layout) -> Config:
    """Where the services of a lab listen."""
    address = str(layout.azure_site.endpoint)
    endpoints: dict[str, list[Any]] = {name: [address, 443] for name in ("store", "login", "management")}
    endpoints["metadata"] = [settings.METADATA_ADDRESS, 80]
    endpoints["arc"] = [address, ARC_PORT]
    racks = {str(host.address): host.name for host in layout.hosts if host.site.key == "rack"}
    return Config(
        endpoints,
        ["127.0.0.1", _AZURITE_PORT],
        layout.azure_site.namespace,
        lab=layout.name,
        estate=bool(layout.estate),
        machines=racks,
    )


def prepare(lab: Path, layout: Layout) -> None:
    """Write down where the services listen and make their certificates; hosts get to trust these."""
    launch.prepare(state_folder(lab), configuration(layout))


def start(lab: Path, layout: Layout, progress: Callable[[str, str, str], None]) -> bool:
    """Start what does not run, once prepared; returns at once, but for the first installation of Azurite.

    Returns:
        Whether it is there to be started: Azurite may be neither in the cache nor to be had.
    """
    try:
        # Marked as the lab's, so that `down` ends an installation whose `up` was killed.
        azurite = install.ensure(progress=progress, environment={processes.MARKER: str(lab)})
    except LabError as error:
        progress("azure", "skip", str(error))
        return False
    progress("azure", "start", "")
    folder, config = state_folder(lab), configuration(layout)
    namespace = layout.azure_site.namespace
    for address, device in ((layout.azure_site.endpoint, "lan0"), (settings.METADATA_ADDRESS, "lo")):
        run(["ip", "-n", namespace, "address", "replace", f"{address}/32", "dev", device])
    if processes.running(lab, AZURITE) is None:
        end_strays(lab, str(folder / "blobs"))
        command = ["ip", "netns", "exec", namespace, *launch.azurite_command(azurite, folder, config)]
        processes.spawn(command, lab, AZURITE, launch.azurite_environment())
    if processes.running(lab, PROXY) is None:
        end_strays(lab, str(folder))
        processes.spawn(launch.process_command(folder), lab, PROXY)
    return True


def end_strays(lab: Path, argument: str) -> None:
    """End the lab's processes with this argument: an `up` was killed before it wrote one's number down."""
    strays = []
    for pid in processes.marked(lab):
        with contextlib.suppress(OSError):
            if argument.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                strays.append(pid)
    processes.kill(strays)


def wait(lab: Path) -> None:
    """Return once the store answers and the controller has its identity; LabError when it does not."""
    folder = state_folder(lab)
    launch.wait_ready(folder, lambda: running(lab))
    # Late: cryptography would cost each command of the lab its import.
    from ironspan.lab.azure import variables

    client.request(folder, "federate", **variables.write_token(folder))


def running(lab: Path) -> bool:
    """Whether both processes run."""
    return all(processes.running(lab, name) is not None for name in (AZURITE, PROXY))


def status(lab: Path, layout: Layout) -> dict[str, Any]:
    """What `lab status` says of it: {"installed", "ready", "url", "address"} and, when it runs, "faults"."""
    found: dict[str, Any] = {
        "installed": install.installed() is not None,
        "ready": False,
        "url": f"https://{settings.BLOB_HOST}",
        "address": str(layout.azure_site.endpoint),
        "faults": [],
    }
    try:
        seen = client.request(state_folder(lab), "status")
    except LabError:
        return found
    return {**found, "ready": bool(seen["ready"]) and running(lab), "faults": seen["faults"]}
