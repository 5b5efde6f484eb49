# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A real Ironic on this machine: API and conductor in one process, on the loopback interface.

Where nothing else is asked for, its servers are Ironic's own pretended ones (``fake-hardware``): they take
every step of a real one, at once, and have no disk. It runs from the packed program that hosts get, and keeps
everything in one folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ironspan.lab import files, packed, processes
from ironspan.lab.errors import LabError
from ironspan.lab.ports import free_port

NAME, TITLE, USER = "ironic", "Ironic", "admin"
STARTS_WITHIN_S = 240.0
ENDS_WITHIN_S = 20.0
_INTERFACES = "bios boot console deploy firmware inspect management power raid rescue vendor"
_COST = "4"
"""Of bcrypt, which Ironic pays with each request; the password is 192 random bits."""
_WORKERS = 100
_STARTED = b"Successfully started conductor"
Sections = Mapping[str, Mapping[str, object]]
"""Sections of ``ironic.conf``, their options and values."""


@dataclass(frozen=True)
class Ironic:
    """An Ironic of the lab.

    Args:
        folder: of its files.
        port: of its API.
        address: where its API listens.
    """

    folder: Path
    port: int
    address: str = "127.0.0.1"

    @property
    def url(self) -> str:
        """The endpoint of its API."""
        return f"http://{self.address}:{self.port}"

    @property
    def password(self) -> str:
        """The password of ``USER``."""
        return (self.folder / "password").read_text(encoding="ascii").strip()

    @property
    def clouds(self) -> Path:
        """A ``clouds.yaml`` whose cloud ``lab`` this is."""
        return self.folder / "clouds.yaml"

    @property
    def log(self) -> Path:
        """What it says."""
        return self.folder / "log" / f"{NAME}.log"


def library() -> Path:
    """Return the folder with Ironic's modules, for what asks them and not its API.

    Raises:
        LabError: nobody built it.
    """
    return packed.library(NAME, TITLE)


def start(folder: Path, sections: Sections | None = None) -> Ironic:
    """Start an Ironic, and return when its API and its conductor answer; one that runs so is left alone.

    Args:
        folder: for its files. With those of an Ironic that ended it goes on where that was.
        sections: what its configuration shall have beside, or instead of, the lab's own.

    Raises:
        LabError: it is not built, or does not start.
    """
    command = packed.command(NAME, TITLE)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = not (folder / "ironic.conf").is_file()
    api = (sections or {}).get("api", {})
    port = int(str(api.get("port") or _port_of(folder) or free_port()))
    lab = Ironic(folder, port, str(api.get("host_ip", Ironic.address)))
    text = _text(_configuration(lab), sections or {})
    if processes.running(folder, NAME):
        if not fresh and (folder / "ironic.conf").read_text() == text:
            _wait(lab, 0)
            return lab
        stop(folder)
    if fresh:
        _write_login(lab, command)
    # Last: what is whole has it.
    files.write_atomic(folder / "port", f"{port}\n")
    files.write_atomic(folder / "ironic.conf", text)
    options = ["--config-file", str(folder / "ironic.conf")]
    if fresh or not (folder / "ironic.sqlite").is_file():
        packed.run([*command, "dbsync", *options, "create_schema"], TITLE)
    said = lab.log.stat().st_size if lab.log.exists() else 0
    processes.spawn([*command, "run", *options], folder, NAME)
    _wait(lab, said)
    return lab


def stop(folder: Path) -> None:
    """End the Ironic of a folder; its database stays."""
    pid = processes.running(folder, NAME)
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 15)
        until = time.monotonic() + ENDS_WITHIN_S
        while processes.running(folder, NAME) and time.monotonic() < until:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
            time.sleep(0.05)
    processes.end(folder)
    processes.forget(folder, NAME)


@contextlib.contextmanager
def running(folder: Path, sections: Sections | None = None) -> Iterator[Ironic]:
    """Run an Ironic for as long as a block lasts."""
    try:
        yield start(folder, sections)
    finally:
        stop(folder)


def _write_login(lab: Ironic, command: list[str]) -> None:
    """Make a password; write it down for clients, and its hash for Ironic."""
    password = secrets.token_urlsafe(24)
    line = packed.run([*command, "password", USER, _COST], TITLE, password)
    cloud = {
        "auth_type": "http_basic",
        "auth": {"endpoint": lab.url, "username": USER, "password": password},
        "baremetal_endpoint_override": lab.url,
    }
    for name, text in (
        ("password", f"{password}\n"),
        ("htpasswd", line),
        ("clouds.yaml", json.dumps({"clouds": {"lab": cloud}}, indent=1)),
    ):
        files.write_atomic(lab.folder / name, text, mode=0o600)


def _configuration(lab: Ironic) -> Sections:
    folder = lab.folder
    return {
        "DEFAULT": {
            "auth_strategy": "http_basic",
            "http_basic_auth_user_file": folder / "htpasswd",
            "rpc_transport": "none",
            "host": "localhost",
            "my_ip": "127.0.0.1",
            "state_path": folder,
            "enabled_hardware_types": "fake-hardware",
            **{f"enabled_{name}_interfaces": "fake" for name in _INTERFACES.split()},
            "enabled_network_interfaces": "noop",
            "enabled_storage_interfaces": "noop",
            "default_network_interface": "noop",
        },
        "api": {"host_ip": lab.address, "port": lab.port},
        # Where agents call back, which have no login and need none for that.
        "service_catalog": {"auth_type": "none", "endpoint_override": lab.url},
        "conductor": {
            "workers_pool_size": _WORKERS,
            "sync_power_state_interval": 600,
            # With SQLite a conductor writes no heartbeats, and would count as gone after a minute.
            "heartbeat_timeout": 86400,
        },
        "database": {"connection": f"sqlite:///{folder}/ironic.sqlite"},
        "dhcp": {"dhcp_provider": "none"},
        "oslo_concurrency": {"lock_path": folder / "locks"},
    }


def _text(*layers: Sections) -> str:
    merged: dict[str, dict[str, object]] = {}
    for layer in layers:
        for section, options in layer.items():
            merged.setdefault(section, {}).update(options)
    return "".join(
        f"[{section}]\n" + "".join(f"{key} = {value}\n" for key, value in options.items())
        for section, options in merged.items()
    )


def _port_of(folder: Path) -> int | None:
    try:
        return int((folder / "port").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _wait(lab: Ironic, said: int) -> None:
    """Wait for the API, and for a conductor: until one is there, nothing can be asked of a server.

    A conductor is in the API's list before it is done starting: it then fails each server that was asked
    for something in between, as left over from its last life. Only its log says when that is over.

    Args:
        lab: the Ironic.
        said: bytes of its log that are of an earlier start.
    """
    import base64
    import urllib.request

    login = base64.b64encode(f"{USER}:{lab.password}".encode()).decode()
    ask = urllib.request.Request(
        f"{lab.url}/v1/conductors",
        headers={"Authorization": f"Basic {login}", "X-OpenStack-Ironic-API-Version": "1.90"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    until = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < until:
        if processes.running(lab.folder, NAME) is None:
            break
        with contextlib.suppress(OSError), opener.open(ask, timeout=10) as answer:
            alive = any(one["alive"] for one in json.load(answer)["conductors"])
            if alive and _STARTED in lab.log.read_bytes()[said:]:
                return
        time.sleep(0.2)
    log = lab.log.read_text(encoding="utf-8", errors="replace")[-2000:]
    raise LabError(f"Ironic does not start: {log}", exit_code=1)
