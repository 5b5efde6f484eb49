# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Servers with BMCs on this machine: sushy-tools' emulator over TLS, with a front for each of its servers.

The servers are pretended ones (``--fake``): they switch on and off after some seconds, remember their boot
device and their virtual media, and run nothing.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import ssl
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from ironspan.lab import files, packed, processes
from ironspan.lab.bmc import resources
from ironspan.lab.bmc.front import Front
from ironspan.lab.bmc.resources import Account, State
from ironspan.lab.bmc.servers import Emulated
from ironspan.lab.errors import LabError

ENVIRONMENT, TITLE, NAME = "bmc-emulator", "The emulator of BMCs", "bmc-emulator"
ADDRESS = "127.0.0.1"
USERNAME = "root"
STARTS_WITHIN_S = 120.0
_SPACE = uuid.UUID("5f6c2d1e-0f4b-4d0b-9d57-6f1b5c1d7a10")


def program() -> Path | None:
    """Return the packed emulator, None where nobody built it."""
    return packed.program(ENVIRONMENT)


@contextlib.contextmanager
def running(
    folder: Path, count: int, addresses: list[str] | None = None, port: int = 0
) -> Iterator[list[Front]]:
    """Run servers with BMCs for as long as a block lasts.

    Each BMC has the account ``USERNAME`` with a random password, as from a factory, and a certificate that
    it has signed itself.

    Args:
        folder: for their files.
        count: how many; they are called ``server-1`` and so on, with serial numbers ``LAB0001`` and so on.
        addresses: where each BMC listens; ``ADDRESS`` for all when None.
        port: of HTTPS, the same for all; 0 for any that is free.

    Raises:
        LabError: the emulator is not built, or does not start.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    emulator_port = _start(folder, count)
    try:
        with contextlib.ExitStack() as stack:
            fronts = []
            for number in range(1, count + 1):
                address = addresses[number - 1] if addresses else ADDRESS
                account = Account(USERNAME, secrets.token_urlsafe(12))
                server = Emulated(identity(number), ADDRESS, emulator_port, str(folder / "emulator.crt"))
                front = Front(folder, State(serial(number), {"1": account}), server, address, port)
                fronts.append(stack.enter_context(front.running()))
            yield fronts
    finally:
        processes.kill(processes.marked(folder))
        processes.forget(folder, NAME)


def identity(number: int) -> str:
    """Return the UUID of a server's system."""
    return str(uuid.uuid5(_SPACE, str(number)))


def serial(number: int) -> str:
    """Return the serial number of a server."""
    return f"LAB{number:04}"


def _start(folder: Path, count: int) -> int:
    command = packed.command(ENVIRONMENT, TITLE)
    with socket.socket() as probe:
        probe.bind((ADDRESS, 0))
        port = int(probe.getsockname()[1])
    key = resources.new_key({})
    files.write_atomic(folder / "emulator.key", resources.key_pem(key).decode(), mode=0o600)
    files.write_atomic(folder / "emulator.crt", resources.factory_certificate(key, "emulator").decode())
    systems = [
        {
            "uuid": identity(number),
            "name": f"server-{number}",
            "power_state": "Off",
            "external_notifier": False,
            "nics": [{"mac": f"52:54:00:00:{number >> 8:02x}:{number & 255:02x}", "ip": "192.0.2.1"}],
        }
        for number in range(1, count + 1)
    ]
    settings = {
        "SUSHY_EMULATOR_FAKE_DRIVER": True,
        "SUSHY_EMULATOR_FAKE_SYSTEMS": systems,
        "SUSHY_EMULATOR_STATE_DIR": str(folder),
        "SUSHY_EMULATOR_LISTEN_IP": ADDRESS,
        "SUSHY_EMULATOR_LISTEN_PORT": port,
        "SUSHY_EMULATOR_SSL_CERT": str(folder / "emulator.crt"),
        "SUSHY_EMULATOR_SSL_KEY": str(folder / "emulator.key"),
    }
    lines = [f"{name} = {value!r}\n" for name, value in settings.items()]
    files.write_atomic(folder / "emulator.conf", "".join(lines))
    processes.spawn([*command, "--fake", "--config", str(folder / "emulator.conf")], folder, NAME)
    _wait(folder, port, count)
    return port


def _wait(folder: Path, port: int, count: int) -> None:
    server = Emulated("", ADDRESS, port, str(folder / "emulator.crt"))
    until = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < until and processes.running(folder, NAME):
        with contextlib.suppress(OSError, ssl.SSLError, json.JSONDecodeError):
            answer = server.ask("GET", f"{resources.ROOT}/Systems", None)
            if answer.status == 200 and len((answer.body or {}).get("Members", ())) == count:
                return
        time.sleep(0.2)
    log = folder / "log" / f"{NAME}.log"
    said = log.read_text(encoding="utf-8", errors="replace")[-2000:] if log.is_file() else "nothing"
    raise LabError(f"{TITLE} does not start: {said}", exit_code=1)
