# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Virtual machines of the emulated Azure as hosts of the lab, on the Azure side's network.

The emulator's process lives in a router's network namespace; hosts are started from the machine's own, by one
thread that goes back there. What it makes is recorded as the lab's, so `lab down` takes it away.
"""

from __future__ import annotations

import ctypes
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from ipaddress import IPv4Address
from typing import Any

from ironspan.lab import base_image, files, host, keys, resize, state
from ironspan.lab.errors import LabError
from ironspan.lab.layout import LabHost, Layout
from ironspan.lab.machine import detect

_CLONE_NEWNET = 0x40000000


def lab_host(layout: Layout, machine: dict[str, Any]) -> LabHost:
    """Return the host that a virtual machine is.

    Args:
        layout: The lab.
        machine: What a driver is told of a machine.

    Raises:
        LabError: Its address is none that a host on the Azure side may have.
    """
    site, name = layout.azure_site, str(machine["computer"])
    address = IPv4Address(machine["address"] or "0.0.0.0")
    taken = {site.controller, site.router, site.endpoint, *(one.address for one in layout.hosts)}
    if name in (one.name for one in layout.hosts):
        raise LabError(f"virtual machine {name!r}: the lab itself has a host of this name")
    if address not in site.network or address in taken:
        raise LabError(
            f"virtual machine {name!r}: the lab has no room for the address {address}; write addresses of "
            f"{site.network} that no host has into the estate"
        )
    number = int(address) & 0xFF  # short: an interface is called after it
    return LabHost(name, site, address, f"is{layout.index}-vm{number}", f"ironspan-{layout.name}-vm{number}")


class LabMachines:
    """Starts, stops and removes hosts of a lab for virtual machines, one by one in the background."""

    def __init__(self, lab: str, namespace: int) -> None:
        """Keep the lab's name and a descriptor of the network namespace that hosts are started from."""
        self._lab = lab
        self._namespace = namespace
        self._wanted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def start(self, machine: dict[str, Any]) -> None:
        """Boot a host; made if it is new."""
        self._wanted.put(lambda: self._start(machine))

    def stop(self, machine: dict[str, Any]) -> None:
        """Take the power away from a host."""
        self._wanted.put(lambda: self._stop(machine))

    def remove(self, machine: dict[str, Any]) -> None:
        """Take away a host with all it holds."""
        self._wanted.put(lambda: self._remove(machine))

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
            job = self._wanted.get()
            try:
                with files.locked(state.lab_lock(self._lab)):
                    job()
            except (LabError, OSError) as error:
                print(error, file=sys.stderr, flush=True)
            except Exception:  # the next machine must not suffer from it
                traceback.print_exc(file=sys.stderr)

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
        host.start(machine, current.folder, base_image.tree_path(), one)

    def _stop(self, about: dict[str, Any]) -> None:
        current = self._current()
        host.stop(current.folder, lab_host(current.layout, about), detect())

    def _remove(self, about: dict[str, Any]) -> None:
        current = self._current()
        resize.remove(detect(), current, lab_host(current.layout, about), again="lab down")
