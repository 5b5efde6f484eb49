# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The process of BMCs that outlive who started them: one front a server, and faults on command.

It reads ``bmcs.json`` of its folder, and writes ``factory.yml``, the accounts that its BMCs came with. A BMC
keeps its certificate and its account when the process starts again.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import signal
import socketserver
import threading
import typing as t
from collections.abc import Mapping, Sequence
from pathlib import Path

from ironspan.lab import files
from ironspan.lab.bmc.emulator import ADDRESS, USERNAME
from ironspan.lab.bmc.faults import Fault
from ironspan.lab.bmc.front import Front
from ironspan.lab.bmc.resources import Account, State
from ironspan.lab.bmc.servers import Emulated

PORT = 443
_LIES = ("", "deaf", "claims-off", "claims-on")


class Described(t.TypedDict):
    """A BMC as ``bmcs.json`` has it."""

    identity: str
    serial: str
    address: str


def configuration(folder: Path) -> Path:
    """Return the file that says which BMCs there are."""
    return folder / "bmcs.json"


def factory_file(folder: Path) -> Path:
    """Return the file with the accounts that the BMCs came with (docs/bmc.md)."""
    return folder / "factory.yml"


def socket_path(folder: Path) -> Path:
    """Return the socket that takes commands."""
    return folder / "control.sock"


def describe(bmcs: Sequence[Described], emulator_port: int) -> str:
    """Return the text of ``bmcs.json``."""
    return json.dumps({"emulator_port": emulator_port, "bmcs": list(bmcs)}, indent=1) + "\n"


def serve(folder: Path) -> None:
    """Answer for the BMCs until the process is ended.

    Args:
        folder: with the configuration, and for keys and accounts.
    """
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    document = json.loads(configuration(folder).read_text(encoding="utf-8"))
    port = document["emulator_port"]
    with contextlib.ExitStack() as stack:
        fronts = {}
        for bmc in document["bmcs"]:
            front = _front(folder, bmc, port)
            fronts[bmc["serial"]] = stack.enter_context(front.running())
        _write_factory(folder, list(fronts.values()))
        control = stack.enter_context(_listening(folder, fronts))
        threading.Thread(target=control.serve_forever, daemon=True).start()
        over.wait()
        control.shutdown()


def _front(folder: Path, bmc: Described, emulator_port: int) -> Front:
    path = folder / f"{bmc['serial']}.account"
    if not path.exists():
        password = secrets.token_urlsafe(12)
        files.write_atomic(path, json.dumps({"factory": password, "password": password}), 0o600)
    kept = json.loads(path.read_text(encoding="utf-8"))
    server = Emulated(bmc["identity"], ADDRESS, emulator_port, str(folder / "emulator.crt"))
    state = State(bmc["serial"], {"1": Account(USERNAME, kept["password"])})

    def keep() -> None:
        account = {"factory": kept["factory"], "password": state.accounts["1"].password}
        files.write_atomic(path, json.dumps(account), 0o600)

    return Front(folder, state, server, bmc["address"], PORT, keep)


def _write_factory(folder: Path, fronts: Sequence[Front]) -> None:
    accounts = {}
    for front in fronts:
        serial = front.state.serial
        kept = json.loads((folder / f"{serial}.account").read_text(encoding="utf-8"))
        accounts[serial] = {"username": USERNAME, "password": kept["factory"], "sha256": front.sha256}
    files.write_atomic(factory_file(folder), json.dumps(accounts, indent=1) + "\n", 0o600)


def command(fronts: Mapping[str, Front], asked: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Do what a line asks: let a BMC fail, let it lie about power, or end all of it.

    Args:
        fronts: BMCs by the serial number of their server.
        asked: ``serial``; ``fault`` (fields of ``Fault``), ``power``, or ``heal``.

    Returns:
        What was seen of the BMC, or ``error``.
    """
    front = fronts.get(str(asked.get("serial")))
    if front is None:
        return {"error": f"write one of {', '.join(fronts)} as serial"}
    try:
        if asked.get("heal"):
            front.faults.clear()
        if fault := asked.get("fault"):
            front.faults.add(Fault(**fault))
        if "power" in asked:
            if asked["power"] not in _LIES:
                return {"error": f"write one of {', '.join(filter(None, _LIES))} as power"}
            front.faults.power = asked["power"]
    except TypeError as error:
        return {"error": str(error)}
    return {"requests": len(front.seen)}


class _Control(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


@contextlib.contextmanager
def _listening(folder: Path, fronts: Mapping[str, Front]) -> t.Iterator[_Control]:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            try:
                answer = command(fronts, json.loads(self.rfile.readline(1 << 16)))
            except (ValueError, AttributeError) as error:
                answer = {"error": str(error)}
            self.wfile.write(json.dumps(answer).encode() + b"\n")

    path = socket_path(folder)
    path.unlink(missing_ok=True)
    with _Control(str(path), Handler) as control:
        path.chmod(0o600)
        yield control
