# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The BMCs of virtual servers: the emulator of sushy-tools, whose servers QEMU runs here.

Started with the Python that has sushy-tools, which need not be ours: it imports nothing else.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import typing as t

from sushy_tools import error  # type: ignore[import-not-found]
from sushy_tools.emulator import main as emulator  # type: ignore[import-not-found]
from sushy_tools.emulator.resources.systems import fakedriver  # type: ignore[import-not-found]

STOPS_WITHIN_S = 10.0


class QemuServers(fakedriver.FakeDriver):  # type: ignore[misc]
    """Servers of the configuration, each with the command that starts it.

    What a BMC remembers (boot device, media) is the emulator's; power is whether QEMU runs.
    """

    _running: t.ClassVar[dict[str, subprocess.Popen[bytes]]] = {}

    def get_power_state(self, identity: str) -> str:
        """Return On while QEMU runs: a server that switched itself off is off."""
        process = self._running.get(self._get(identity)["uuid"])
        return "On" if process is not None and process.poll() is None else "Off"

    def set_power_state(self, identity: str, state: str) -> None:
        """Do what the BMC is asked for."""
        server = self._get(identity)
        on = self.get_power_state(identity) == "On"
        if state in ("On", "ForceOn"):
            if not on:
                self._start(server)
        elif state in ("ForceOff", "ForceRestart", "GracefulRestart", "PowerCycle"):
            self._stop(server)
            if state != "ForceOff":
                self._start(server)
        elif state == "GracefulShutdown":
            if on:
                self._press(server)
        else:
            raise error.NotSupportedError(f"power state {state}")

    def _start(self, server: dict[str, t.Any]) -> None:
        media, _, inserted = self.get_boot_image(server["uuid"], "Cd")
        extra = []
        if media and inserted:
            first = 0 if server.get("boot_device") == "Cd" else 9
            extra = ["-drive", f"file={media},if=none,id=media,media=cdrom,readonly=on"]
            extra += ["-device", f"ide-cd,drive=media,bootindex={first}"]
        self._running[server["uuid"]] = subprocess.Popen(
            [*server["command"], *extra], stdin=subprocess.DEVNULL, start_new_session=True
        )

    def _stop(self, server: dict[str, t.Any]) -> None:
        process = self._running.pop(server["uuid"], None)
        if process is not None:
            process.kill()
            # Somebody else may have collected it: the emulator collects all its children.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOPS_WITHIN_S)

    def _press(self, server: dict[str, t.Any]) -> None:
        """Press the power button: the system switches itself off when it likes."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as monitor:
            monitor.settimeout(STOPS_WITHIN_S)
            monitor.connect(server["monitor"])
            lines = monitor.makefile("rwb", buffering=0)
            lines.readline()
            for command in ("qmp_capabilities", "system_powerdown"):
                lines.write(json.dumps({"execute": command}).encode() + b"\n")
                lines.readline()


if __name__ == "__main__":
    fakedriver.FakeDriver = QemuServers
    sys.exit(emulator.main())
