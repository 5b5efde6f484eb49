# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The emulator of sushy-tools, whose servers are pretended, or run in QEMU where they have a command for it.

Run with the modules of the packed emulator, and with nothing of ours.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import typing as t
from pathlib import Path

from sushy_tools import error  # type: ignore[import-not-found]
from sushy_tools.emulator import main as emulator  # type: ignore[import-not-found]
from sushy_tools.emulator.resources.systems import fakedriver  # type: ignore[import-not-found]

STOPS_WITHIN_S = 60.0


class Servers(fakedriver.FakeDriver):  # type: ignore[misc]
    """Servers of the configuration. Those with a ``command`` run; the others are pretended.

    What a BMC remembers (boot device, media) is the emulator's. Power of a server that runs is whether its
    process does, which goes on when the emulator ends: another one finds it by the file ``pidfile``. A server
    with a ``tpm`` has that started before it.
    """

    def get_power_state(self, identity: str) -> str:
        """Return On while the server runs: one that switched itself off is off."""
        server = self._get(identity)
        if "command" not in server:
            return str(super().get_power_state(identity))
        return "On" if _running(server) else "Off"

    def set_power_state(self, identity: str, state: str) -> None:
        """Do what the BMC is asked for."""
        server = self._get(identity)
        if "command" not in server:
            super().set_power_state(identity, state)
        elif state in ("On", "ForceOn"):
            if not _running(server):
                self._start(server)
        elif state in ("ForceOff", "ForceRestart", "GracefulRestart", "PowerCycle"):
            _switch_off(server)
            if state != "ForceOff":
                self._start(server)
        elif state == "GracefulShutdown":
            _press(server)
        else:
            raise error.NotSupportedError(f"power state {state}")

    def _start(self, server: dict[str, t.Any]) -> None:
        media, _, inserted = self.get_boot_image(server["uuid"], "Cd")
        extra = []
        if media and inserted:
            first = 0 if server.get("boot_device") == "Cd" else 9
            extra = ["-drive", f"file={media},if=none,id=media,media=cdrom,readonly=on"]
            extra += ["-device", f"ide-cd,drive=media,bootindex={first}"]
        _switch_off(server)
        if tpm := server.get("tpm"):
            subprocess.run(tpm["command"], stdin=subprocess.DEVNULL, check=True, timeout=STOPS_WITHIN_S)
        started = subprocess.Popen(
            [*server["command"], *extra], stdin=subprocess.DEVNULL, start_new_session=True
        )
        Path(server["pidfile"]).write_text(f"{started.pid}\n", encoding="ascii")
        # For a moment of its start a process has no command line, and would pass for one that ended.
        until = time.monotonic() + STOPS_WITHIN_S
        while not _running(server) and started.poll() is None and time.monotonic() < until:
            time.sleep(0.01)


def _running(server: dict[str, t.Any]) -> int | None:
    """Return the number of a server's process, None while it is off."""
    return _process(server["pidfile"], server["uuid"])


def _process(pidfile: str, mark: str) -> int | None:
    """Return the number that a file has, if it is that of a process with the argument ``mark``."""
    with contextlib.suppress(OSError, ValueError):
        number = int(Path(pidfile).read_text(encoding="ascii"))
        # The number may be another process by now; one that ended and was not collected has no command.
        if mark.encode() in Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0"):
            return number
    return None


def _switch_off(server: dict[str, t.Any]) -> None:
    """End a server, and its TPM, which ends by itself with a server that has found it."""
    _stop(server["pidfile"], server["uuid"])
    if tpm := server.get("tpm"):
        _stop(tpm["pidfile"], tpm["mark"])


def _stop(pidfile: str, mark: str) -> None:
    until = time.monotonic() + STOPS_WITHIN_S
    while (number := _process(pidfile, mark)) and time.monotonic() < until:
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
        # The emulator collects all its children when they end; this only waits.
        time.sleep(0.05)


def _press(server: dict[str, t.Any]) -> None:
    """Press the power button: the system switches itself off when it likes."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as monitor:
        monitor.settimeout(STOPS_WITHIN_S)
        monitor.connect(server["monitor"])
        lines = monitor.makefile("rwb", buffering=0)
        lines.readline()
        for command in ("qmp_capabilities", "system_powerdown"):
            lines.write(json.dumps({"execute": command}).encode() + b"\n")
            lines.readline()


def main() -> int:
    """Run the emulator with the options of the process, and return its exit code."""
    sys.argv[0] = "sushy-emulator"
    fakedriver.FakeDriver = Servers
    return int(emulator.main() or 0)


if __name__ == "__main__":
    sys.exit(main())
