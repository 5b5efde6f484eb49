# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A real Ironic on this machine, all in one process, with nodes whose hardware is not there (fake-hardware).

Its installation is none of the project's own: the variable IRONSPAN_IRONIC_PYTHON names the Python of a
virtual environment with ``ironic`` and ``bcrypt``.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

VARIABLE = "IRONSPAN_IRONIC_PYTHON"
USER, PASSWORD = "admin", "secret"
STARTS_WITHIN_S = 240
_CONFIGURATION = """\
[DEFAULT]
auth_strategy = http_basic
http_basic_auth_user_file = {folder}/htpasswd
rpc_transport = none
host = localhost
my_ip = 127.0.0.1
state_path = {folder}
enabled_hardware_types = fake-hardware
{interfaces}
enabled_network_interfaces = noop
enabled_storage_interfaces = noop
default_network_interface = noop
[api]
host_ip = 127.0.0.1
port = {port}
[conductor]
workers_pool_size = {workers}
sync_power_state_interval = 600
[database]
connection = sqlite:///{folder}/ironic.sqlite
[dhcp]
dhcp_provider = none
[oslo_concurrency]
lock_path = {folder}/locks
"""
_INTERFACES = "bios boot console deploy firmware inspect management power raid rescue vendor"


@contextlib.contextmanager
def ironic(folder: Path, workers: int = 100) -> Iterator[str]:
    """Run an Ironic, and yield the endpoint of its API.

    Args:
        folder: for its files.
        workers: threads of its conductor; Ironic refuses few.
    """
    python = Path(os.environ[VARIABLE])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    interfaces = "\n".join(f"enabled_{name}_interfaces = fake" for name in _INTERFACES.split())
    configuration = folder / "ironic.conf"
    configuration.write_text(
        _CONFIGURATION.format(folder=folder, port=port, interfaces=interfaces, workers=workers)
    )
    hashing = "import bcrypt; print(bcrypt.hashpw(input().encode(), bcrypt.gensalt(4)).decode())"
    hashed = subprocess.run(
        [python, "-c", hashing], input=PASSWORD, check=True, capture_output=True, text=True
    )
    (folder / "htpasswd").write_text(f"{USER}:{hashed.stdout}")
    options = ["--config-file", str(configuration)]
    subprocess.run(
        [python.parent / "ironic-dbsync", *options, "create_schema"], check=True, capture_output=True
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([python.parent / "ironic", *options], stdout=log, stderr=log)
    try:
        _wait(port, process, folder / "log")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for the API; that a conductor lives shows in the API's own list."""
    until = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text()[-2000:]
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.5)
    raise AssertionError(f"no API after {STARTS_WITHIN_S} s: {log.read_text()[-2000:]}")
