# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The process of the emulated Azure: all endpoints and the control socket in one loop."""

from __future__ import annotations

import asyncio
import collections
import ctypes
import os
import signal
import ssl
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ironspan.lab.azure import client, control, http, identity, settings
from ironspan.lab.azure.arm.machines import Driver
from ironspan.lab.azure.arm.metadata import Instances
from ironspan.lab.azure.arm.service import Arm
from ironspan.lab.azure.config import PRIVATE, Config, authority, server
from ironspan.lab.azure.http import Broken, Handler, Request, Response
from ironspan.lab.azure.management import Management
from ironspan.lab.azure.private import Private
from ironspan.lab.azure.store import Store
from ironspan.lab.azure.upstream import Upstream
from ironspan.lab.azure.vaults import Vaults
from ironspan.lab.azure.world import World

if TYPE_CHECKING:
    from ironspan.lab.azure.plane import Plane

_CLONE_NEWNET = 0x40000000
_HOSTS = {settings.LOGIN_HOST: "login", settings.MANAGEMENT_HOST: "management"}
#: How paths begin that only these services have: the controller has none of the lab's names.
_PATHS = {settings.TENANT: "login", "common": "login", "subscriptions": "management"}
#: Seconds that a challenge stays in its machine: several programs there may be asking at once.
_CHALLENGE_S = 60.0
#: Seconds between two looks at what the resource manager has under way.
_TICK_S = 0.25
#: Seconds between two tries while Azurite starts.
_AGAIN_S = 0.05


def enter(namespace: str) -> None:
    """Move this process into a network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    there = os.open(f"/run/netns/{namespace}", os.O_RDONLY | os.O_CLOEXEC)
    if libc.setns(there, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), f"cannot enter network namespace {namespace}")
    os.close(there)


def by_host(services: dict[str, Handler]) -> Handler:
    """Return a handler that passes requests on by Host header, or by path when that is an address."""

    async def choose(request: Request) -> Response:
        name = _HOSTS.get(request.headers.get("host", "").partition(":")[0].lower(), "")
        if not name:
            name = _PATHS.get(request.path.split("/")[1].lower(), "store")
        return await services[name](request)

    return choose


async def _create_container(world: World, upstream: Upstream) -> None:
    """Wait for Azurite and make the container that every lab has."""
    target = f"/{settings.CONTAINER}?restype=container"

    while True:
        try:
            response = await upstream.ask("PUT", target, settings.BLOB_HOST, world.own_token())
        except Broken:
            await asyncio.sleep(_AGAIN_S)
            continue
        if response.status not in (201, 409):
            raise RuntimeError(f"Azurite answers {response.status} when a container is made")
        return


def _driver(config: Config, namespace: int) -> Driver | None:
    """Return what makes virtual machines hosts of the lab; None outside of one."""
    if not config.lab:
        return None
    # Late: tests on loopback need none of the lab's hosts.
    from ironspan.lab.azure.machines import LabMachines

    return LabMachines(config.lab, namespace)


def _plane(config: Config, arm: Arm, private: Handler, tls: ssl.SSLContext) -> Plane | None:
    """Return what serves the estate of a lab; None where the lab has hosts in its place."""
    if not config.estate:
        return None
    # Late, like the lab's hosts.
    from ironspan.lab.azure.plane import Plane
    from ironspan.lab.state import lab_folder

    return Plane(arm.state, lab_folder(config.lab), private, tls)


async def _serve(folder: Path, config: Config, namespace: int) -> None:
    world = World(folder)
    trusted = ssl.create_default_context(cafile=str(authority(folder)))
    upstream = Upstream(str(config.azurite[0]), int(config.azurite[1]), trusted)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*server(folder))
    where = config.endpoints
    arm = Arm(folder, _driver(config, namespace))
    arm.resume()
    store = Store(world, upstream, arm.state)
    private = Private(arm.state, store, Vaults(world, arm.state), anywhere=PRIVATE in where)
    services: dict[str, Handler] = {
        "store": store,
        PRIVATE: private,
        "login": identity.Login(world),
        "management": Management(world, upstream, arm),
        "metadata": identity.Metadata(world, Instances(arm.state)),
        "arc": identity.Arc(world, _placer(config), config.arc_folder),
    }
    groups: dict[tuple[str, int], dict[str, Handler]] = collections.defaultdict(dict)
    for name, (address, port) in where.items():
        groups[str(address), int(port)][name] = services[name]
    servers = []
    for (address, port), group in groups.items():
        handler = by_host(group) if len(group) > 1 else next(iter(group.values()))
        secure = tls if "metadata" not in group and "arc" not in group else None
        servers.append(await http.listen(handler, address, port, secure))
    about: dict[str, Any] = {"ready": False, "pid": os.getpid(), "endpoints": where}
    commands = control.Control(world, about, arm)
    listener = await control.listen(commands, client.socket_path(folder))
    await _create_container(world, upstream)
    about["ready"] = True
    plane = _plane(config, arm, private, tls)
    async with listener:
        while True:
            await asyncio.sleep(_TICK_S)
            arm.tick()
            if plane is not None:
                await plane.follow()


def _placer(config: Config) -> identity.Place:
    """Return what writes an Arc machine's challenge into its file system."""

    def root(name: str) -> Path | None:
        if not config.lab:
            return Path("/")
        # Late: tests on loopback need none of the lab's hosts.
        from ironspan.lab import host, machine, state

        current = state.load(config.lab)
        pid = host.init_pid(machine.detect(), current.layout.host(name)) if current else None
        return Path(f"/proc/{pid}/root") if pid else None

    def place(address: str, path: str, secret: str) -> bool:
        found = root(config.machines[address]) if address in config.machines else None
        if found is None:
            return False
        target = found / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        for old in target.parent.glob("*.key"):
            if old.stat().st_mtime < time.time() - _CHALLENGE_S:
                old.unlink(missing_ok=True)
        target.write_text(secret)
        target.chmod(0o640)
        return True

    return place


def serve(folder: Path) -> None:
    """Run the emulated Azure of `folder` until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    config = Config.load(folder)
    namespace = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    if config.namespace:
        enter(config.namespace)
    asyncio.run(_serve(folder, config, namespace))
