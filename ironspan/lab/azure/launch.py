# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The command lines of the emulated Azure's two processes, and waiting for them."""

from __future__ import annotations

import base64
import hashlib
import sys
import time
from collections.abc import Callable
from pathlib import Path

from ironspan.lab.azure import client, settings
from ironspan.lab.azure.config import Config, server
from ironspan.lab.azure.install import Azurite
from ironspan.lab.errors import LabError

#: Node.js takes half of the machine's memory otherwise before it collects.
_HEAP_MB = 256


def azurite_command(azurite: Azurite, folder: Path, config: Config) -> list[str]:
    """Return the command that runs Azurite for the emulated Azure in `folder`."""
    address, port = config.azurite
    certificate, key = server(folder)
    return [
        str(azurite.node), f"--max-old-space-size={_HEAP_MB}", str(azurite.script),
        "--location", str(folder / "blobs"), "--blobHost", str(address), "--blobPort", str(port),
        "--oauth", "basic", "--cert", str(certificate), "--key", str(key),
        "--skipApiVersionCheck", "--disableTelemetry", "--silent",
    ]  # fmt: skip


def azurite_environment() -> dict[str, str]:
    """Return what Azurite reads from its environment: the account, with a key that the proxy refuses."""
    key = base64.b64encode(hashlib.sha512(settings.ACCOUNT.encode()).digest()).decode()
    return {"AZURITE_ACCOUNTS": f"{settings.ACCOUNT}:{key}"}


def process_command(folder: Path) -> list[str]:
    """Return the command that runs proxy and stubs of the emulated Azure in `folder`."""
    return [sys.executable, "-m", "ironspan.lab.azure", str(folder)]


def prepare(folder: Path, config: Config) -> None:
    """Write down what both processes need before they start."""
    # Late: cryptography would cost each command of the lab its import.
    from ironspan.lab.azure import certificates

    for name in ("blobs", "keys"):
        (folder / name).mkdir(parents=True, exist_ok=True, mode=0o700)
    addresses = {str(address) for address, _ in (*config.endpoints.values(), config.azurite)}
    certificates.ensure(folder, (*settings.NAMES, *settings.DECLARED_NAMES), sorted(addresses))
    config.save(folder)


def wait_ready(folder: Path, alive: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Return once a request to the store is answered.

    Args:
        folder: The emulated Azure's folder.
        alive: Whether both processes still run.
        timeout_s: Seconds to wait.

    Raises:
        LabError: One of them ended, or they are not ready in time.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            if client.request(folder, "status")["ready"]:
                return
        except LabError:
            if not alive():
                raise LabError(f"the lab's Azure ended while starting; see the logs of {folder}", 1) from None
        if time.monotonic() > deadline or not alive():
            raise LabError(f"the lab's Azure is not ready; see the logs of {folder}", 1)
        time.sleep(0.05)
