# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Servers with BMCs on this machine: sushy-tools' emulator over TLS, with a front for each of its servers.

Servers are pretended ones (``--fake``), which switch on and off after some seconds, remember their boot
device and their virtual media, and run nothing; or virtual ones, which QEMU runs (``ironspan.lab.virtual``).
"""

from __future__ import annotations

import contextlib
import json
import secrets
import ssl
import sys
import time
import typing as t
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from ironspan.lab import files, packed, processes
from ironspan.lab.bmc import resources
from ironspan.lab.bmc.front import Front
from ironspan.lab.bmc.resources import Account, State
from ironspan.lab.bmc.servers import Emulated
from ironspan.lab.errors import LabError
from ironspan.lab.ports import free_port

ENVIRONMENT, TITLE, NAME = "bmc-emulator", "The emulator of BMCs", "bmc-emulator"
ADDRESS = "127.0.0.1"
USERNAME = "root"
STARTS_WITHIN_S = 120.0
System = dict[str, t.Any]
"""A server as the emulator knows it."""
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
    emulator_port = start(folder, [_pretended(number) for number in range(1, count + 1)])
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
        processes.end(folder)
        processes.forget(folder, NAME)


def identity(number: int) -> str:
    """Return the UUID of a server's system."""
    return str(uuid.uuid5(_SPACE, str(number)))


def serial(number: int) -> str:
    """Return the serial number of a server."""
    return f"LAB{number:04}"


def _pretended(number: int) -> System:
    mac = f"52:54:00:00:{number >> 8:02x}:{number & 255:02x}"
    return {
        "uuid": identity(number),
        "name": f"server-{number}",
        "power_state": "Off",
        "external_notifier": False,
        "nics": [{"mac": mac, "ip": "192.0.2.1"}],
    }


def start(folder: Path, systems: Sequence[System]) -> int:
    """Start the emulator on the loopback interface, or leave one that runs with the same servers alone.

    Args:
        folder: for its files.
        systems: its servers, as its fake driver and ``sushy_emulator`` know them.

    Returns:
        Its port.

    Raises:
        LabError: it is not built, or does not start.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    modules = packed.library(ENVIRONMENT, TITLE)
    configuration, port = folder / "emulator.conf", _port(folder)
    settings = {
        "SUSHY_EMULATOR_FAKE_DRIVER": True,
        "SUSHY_EMULATOR_FAKE_SYSTEMS": list(systems),
        "SUSHY_EMULATOR_STATE_DIR": str(folder),
        "SUSHY_EMULATOR_LISTEN_IP": ADDRESS,
        "SUSHY_EMULATOR_LISTEN_PORT": port,
        "SUSHY_EMULATOR_SSL_CERT": str(folder / "emulator.crt"),
        "SUSHY_EMULATOR_SSL_KEY": str(folder / "emulator.key"),
    }
    # It is Python that the emulator reads; JSON's true is not.
    text = "".join(f"{name} = {value!r}\n" for name, value in settings.items())
    running = processes.running(folder, NAME)
    if running and configuration.is_file() and configuration.read_text() == text:
        return port
    processes.kill([running] if running else [])
    key = resources.new_key({})
    files.write_atomic(folder / "emulator.key", resources.key_pem(key).decode(), mode=0o600)
    files.write_atomic(folder / "emulator.crt", resources.factory_certificate(key, "emulator").decode())
    files.write_atomic(configuration, text)
    script = Path(__file__).with_name("sushy_emulator.py")
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-s",
        "-P",
        str(script),
        "--fake",
        "--config",
        str(configuration),
    ]
    processes.spawn(command, folder, NAME, {"PYTHONPATH": str(modules)})
    _wait(folder, port, len(systems))
    return port


def _port(folder: Path) -> int:
    """Return the port of an emulator that was here, or one that is free."""
    with contextlib.suppress(OSError, ValueError):
        return int((folder / "emulator.port").read_text(encoding="ascii"))
    port = free_port(ADDRESS)
    files.write_atomic(folder / "emulator.port", f"{port}\n")
    return port


def _wait(folder: Path, port: int, count: int) -> None:
    server = Emulated("", ADDRESS, port, str(folder / "emulator.crt"))
    until = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < until and processes.running(folder, NAME):
        with contextlib.suppress(OSError, ssl.SSLError, json.JSONDecodeError):
            answer = server.ask("GET", f"{resources.ROOT}/Systems", None)
            if answer.status == 200 and len((answer.body or {}).get("Members", ())) >= count:
                return
        time.sleep(0.2)
    log = folder / "log" / f"{NAME}.log"
    said = log.read_text(encoding="utf-8", errors="replace")[-2000:] if log.is_file() else "nothing"
    raise LabError(f"{TITLE} does not start: {said}", exit_code=1)
