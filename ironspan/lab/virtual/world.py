# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Virtual servers with their BMCs and a real Ironic beside them: what a rack with its deployment host is.

Everything is in one folder, and is found by it again: `up` goes on where another one was killed, and `down`
leaves nothing behind wherever that was.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
from collections.abc import Callable
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from ironspan.lab import files, ironic, mirror, network, packed, processes
from ironspan.lab.bmc import client, emulator, process
from ironspan.lab.errors import LabError
from ironspan.lab.virtual import expected, rack, servers, settings
from ironspan.lab.virtual.rack import MOST, Rack
from ironspan.lab.virtual.servers import Server

MIRROR_PORT, MEDIA_PORT = 8087, 8088
_DHCP, _LEAF = "dhcp", "leaf"
Progress = Callable[[str, str, str], None]


@dataclasses.dataclass(frozen=True)
class World:
    """What is up.

    Args:
        folder: of its files.
        rack: where the servers stand.
        servers: the servers.
        images: files of whole systems, by their name in the lock file.
    """

    folder: Path
    rack: Rack
    servers: list[Server]
    images: dict[str, settings.Image]

    @property
    def ironic(self) -> ironic.Ironic:
        """Its Ironic."""
        return ironic.Ironic(self.folder / "ironic", settings.IRONIC_PORT, str(self.rack.controller))

    @property
    def bmcs(self) -> Path:
        """The folder of its BMCs."""
        return self.folder / "bmc"

    @property
    def factory(self) -> Path:
        """The accounts that the BMCs came with (docs/bmc.md)."""
        return process.factory_file(self.bmcs)

    @property
    def expected(self) -> Path:
        """The file of expected servers."""
        return expected.path(self.folder)


def require(place: Rack) -> dict[str, settings.Image]:
    """Insist on all that virtual servers need of this machine; return the images of whole systems.

    Raises:
        LabError: something is not installed or not built.
    """
    if lacking := servers.missing():
        raise LabError(f"virtual servers need: apt-get install -y {' '.join(lacking)}")
    for environment, title in ((ironic.NAME, ironic.TITLE), (emulator.ENVIRONMENT, emulator.TITLE)):
        if packed.program(environment) is None:
            raise LabError(f"{title} is not built: run `ironspan artifacts build --set bare-metal`")
    return settings.images(place.mirror or f"http://{place.controller}:{MIRROR_PORT}")


def up(folder: Path, place: Rack, count: int, progress: Progress) -> World:
    """Bring servers, BMCs, image servers and Ironic up, or make whole what is there; servers that run go on.

    Args:
        folder: for their files.
        place: where the servers stand.
        count: how many servers. Those beyond, with the highest numbers, lose their power and go.
        progress: called with (what, state, detail).

    Raises:
        LabError: something is not installed or not built, or does not start.
    """
    rack.checked_count(count, 1)
    images = require(place)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Written before anything is made, so that it is found after a kill.
    files.write_if_changed(folder / "rack.json", _written(place))
    machines = [Server(folder, place, number) for number in range(1, count + 1)]
    _remove_surplus(folder, place, count, progress)
    progress("servers", "start", "their BMCs, and the leaf switch that they are cabled to")
    rack.ensure(place, [server.number for server in machines])
    for server in machines:
        server.make()
    _addresses(folder, place, machines)
    _leaf(folder, machines)
    client.ensure(
        folder / "bmc", [server.system() for server in machines], [server.bmc() for server in machines]
    )
    files.write_if_changed(expected.path(folder), expected.text(machines))
    progress(
        "servers", "done", f"{count} of {place.name}, BMCs at {', '.join(s.bmc_address for s in machines)}"
    )
    progress("ironic", "start", "an API and a conductor; takes 10 to 30 s")
    _serve(folder, place)
    lab = ironic.start(folder / "ironic", settings.sections(place, images, folder / "media", MEDIA_PORT))
    progress("ironic", "done", f"{lab.url}, cloud `lab` of {lab.clouds}")
    return World(folder, place, machines, images)


def status(folder: Path, place: Rack, count: int) -> dict[str, Any]:
    """Return how servers and their Ironic stand; asks nobody.

    Returns:
        {"ironic": {"url", "pid"}, "bmcs": pid or None, "servers": [{"name", "bmc", "address", "on",
        "console"}]}; {} where there are none.
    """
    if not count:
        return {}
    machines = [Server(folder, place, number) for number in range(1, count + 1)]
    url = f"http://{place.controller}:{settings.IRONIC_PORT}"
    return {
        "ironic": {"url": url, "pid": processes.running(folder / "ironic", ironic.NAME)},
        "bmcs": processes.running(folder / "bmc", client.NAME),
        "servers": [
            {
                "name": server.name, "bmc": server.bmc_address, "address": server.address,
                "on": server.is_on(), "console": str(server.console),
            }
            for server in machines
        ],
    }  # fmt: skip


def down(folder: Path) -> None:
    """End everything of a folder, and remove what it has on the machine; its files stay."""
    from ironspan.artifacts.mirror import Mirror

    place = _read(folder)
    if (folder / "ironic").is_dir():
        ironic.stop(folder / "ironic")
    for name in ("mirror", "media-server"):
        if (folder / name).is_dir():
            Mirror(folder).stop(folder / name)
    # The emulator's first: it could start a server again.
    for part in (folder / "bmc", folder):
        processes.end(part)
    if place is not None:
        rack.remove(place, range(1, MOST + 1))
        if place.own:
            network.remove_link(place.bridge)


def _written(place: Rack) -> str:
    plain = {**dataclasses.asdict(place), "network": str(place.network), "gateway": str(place.gateway or "")}
    return json.dumps(plain, indent=1) + "\n"


def _read(folder: Path) -> Rack | None:
    """Return the rack of a folder, None where nothing was made yet."""
    try:
        plain = json.loads((folder / "rack.json").read_text())
    except FileNotFoundError:
        return None
    return Rack(**{**plain, "network": IPv4Network(plain["network"]), "gateway": None})


def _remove_surplus(folder: Path, place: Rack, count: int, progress: Progress) -> None:
    """Take away servers that a smaller number leaves out; Ironic is not told, as of any broken server."""
    for number in range(count + 1, MOST + 1):
        server = Server(folder, place, number)
        if not server.disk.exists():
            continue
        # A BMC that goes on could switch it on again.
        processes.kill(filter(None, [processes.running(folder / "bmc", client.NAME)]))
        processes.kill(pid for pid in processes.marked(folder / "bmc") if server.has_process(pid))
        rack.remove(place, [number])
        server.remove()
        progress(server.name, "done", "removed; Ironic has not been told")


def _addresses(folder: Path, place: Rack, machines: list[Server]) -> None:
    """Give the agent addresses by DHCP, on the servers' ports and on no other."""
    known = folder / "dhcp-hosts"
    changed = files.write_if_changed(known, "".join(f"{server.mac},set:server\n" for server in machines))
    pid = processes.running(folder, _DHCP)
    if pid is not None:
        if changed:
            # It reads them again (dnsmasq(8), NOTES).
            os.kill(pid, signal.SIGHUP)
        return
    processes.spawn(
        [
            "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--bind-interfaces",
            f"--interface={place.bridge}", "--except-interface=lo", "--user=root", "--log-facility=-",
            f"--dhcp-range=tag:server,{place.agents},1h", "--dhcp-option=3", f"--dhcp-hostsfile={known}",
            f"--dhcp-leasefile={folder / 'leases'}", "--pid-file=", "--leasefile-ro",
        ],
        folder, _DHCP,
    )  # fmt: skip


def _leaf(folder: Path, machines: list[Server]) -> None:
    """Run the leaf switch that the servers are cabled to."""
    ports = [f"{server.switch_port}={server.tap}" for server in machines]
    changed = files.write_if_changed(folder / "leaf", "\n".join(ports) + "\n")
    pid = processes.running(folder, _LEAF)
    if pid is not None and not changed:
        return
    processes.kill([pid] if pid else [])
    command = [sys.executable, "-m", "ironspan.lab.virtual.leaf", servers.LEAF, *ports]
    processes.spawn(command, folder, _LEAF)


def _serve(folder: Path, place: Rack) -> None:
    """Serve the media that Ironic makes, and the mirror where nobody does."""
    from ironspan.artifacts.mirror import Mirror

    (folder / "media").mkdir(exist_ok=True)
    served = [("media-server", folder / "media", MEDIA_PORT)]
    if not place.mirror:
        served.append(("mirror", mirror.folder_path(), MIRROR_PORT))
    for name, root, port in served:
        (folder / name).mkdir(exist_ok=True)
        Mirror(root).start(folder / name, listen=[f"{place.controller}:{port}"])
