# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Virtual machines of the emulated Azure as hosts of the lab, on the Azure side's network.

The emulator's process lives in a router's network namespace; hosts are started from the machine's own, by one
thread that goes back there. What it makes is recorded as the lab's, so `lab down` takes it away.
"""

from __future__ import annotations

import contextlib
import ctypes
import queue
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from ironspan.lab import base_image, files, host, keys, mounts, resize, state
from ironspan.lab.azure.arm.machines import DriverError
from ironspan.lab.azure.machine_hosts import lab_host, remember
from ironspan.lab.errors import LabError
from ironspan.lab.machine import detect

_CLONE_NEWNET = 0x40000000
#: Seconds between two looks at machines that boot, and how long one may take to answer.
_LOOK_S = 0.3


class LabMachines:
    """Starts, stops and removes hosts of a lab for virtual machines, one by one in the background."""

    def __init__(self, lab: str, namespace: int) -> None:
        """Keep the lab's name and a descriptor of the network namespace that hosts are started from."""
        self._lab = lab
        self._namespace = namespace
        self._wanted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        #: Machines (vmId) that boot, with their addresses, and those that have answered since their start.
        self._booting: dict[str, str] = {}
        self._answered: set[str] = set()
        #: vmId of a machine that could not be booted -> why.
        self._failed: dict[str, str] = {}
        threading.Thread(target=self._work, daemon=True).start()

    def start(self, machine: dict[str, Any]) -> None:
        """Boot a host; made if it is new."""
        self._failed.pop(str(machine["vm_id"]), None)

        def start() -> None:
            try:
                self._start(machine)
            except (LabError, OSError) as error:
                self._failed[str(machine["vm_id"])] = str(error)
                raise

        self._wanted.put(start)

    def stop(self, machine: dict[str, Any]) -> None:
        """Take the power away from a host."""
        self._wanted.put(lambda: self._stop(machine))

    def remove(self, machine: dict[str, Any]) -> None:
        """Take away a host with all it holds."""
        self._wanted.put(lambda: self._remove(machine))

    def forget_disk(self, name: str) -> None:
        """Delete what a disk holds."""
        self._wanted.put(lambda: mounts.remove_tree(host.disk_folder(self._current().folder, name)))

    def ready(self, machine: dict[str, Any]) -> bool:
        """Tell whether a machine that was started answers by now; DriverError when it cannot be booted."""
        if machine["vm_id"] in self._failed:
            raise DriverError(self._failed[machine["vm_id"]])
        return machine["vm_id"] in self._answered

    def host_keys(self, machine: dict[str, Any]) -> list[str]:
        """Return the host's public key: that of the file that it is booted with."""
        current = self._current()
        path = keys.of_host(current.folder, str(machine["computer"]))
        return [path.with_suffix(".pub").read_text().strip()]

    def _work(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(self._namespace, _CLONE_NEWNET) != 0:  # of this thread alone
            raise OSError(ctypes.get_errno(), "cannot go back to the machine's network namespace")
        while True:
            try:
                job = self._wanted.get(timeout=_LOOK_S if self._booting else None)
            except queue.Empty:
                self._look()
                continue
            try:
                with files.locked(state.lab_lock(self._lab)):
                    job()
            except (LabError, OSError) as error:
                print(error, file=sys.stderr, flush=True)
            except Exception:  # the next machine must not suffer from it
                traceback.print_exc(file=sys.stderr)

    def _look(self) -> None:
        """Find out which of the machines that boot answer."""
        for machine, address in list(self._booting.items()):
            with contextlib.suppress(OSError), socket.create_connection((address, 22), _LOOK_S) as connection:
                connection.settimeout(_LOOK_S)
                if connection.recv(4) == b"SSH-":
                    del self._booting[machine]
                    self._answered.add(machine)

    def _current(self) -> state.State:
        current = state.load(self._lab)
        if current is None:
            raise LabError(f"there is no lab {self._lab!r} any more")
        return current

    def _start(self, about: dict[str, Any]) -> None:
        current, machine = self._current(), detect()
        one = lab_host(current.layout, about)
        keys.of_host(current.folder, one.name)
        current.record(host.resources(machine, current.folder, one))
        remember(current.folder, one.name, about)
        self._booting[about["vm_id"]] = str(one.address)
        host.start(machine, current.folder, base_image.tree_path(), one)

    def _stop(self, about: dict[str, Any]) -> None:
        current = self._current()
        self._silent(about)
        host.stop(current.folder, lab_host(current.layout, about), detect())

    def _silent(self, about: dict[str, Any]) -> None:
        self._booting.pop(about["vm_id"], None)
        self._answered.discard(about["vm_id"])

    def _remove(self, about: dict[str, Any]) -> None:
        current = self._current()
        self._silent(about)
        remember(current.folder, str(about["computer"]), None)
        resize.remove(detect(), current, lab_host(current.layout, about), again="lab down")
