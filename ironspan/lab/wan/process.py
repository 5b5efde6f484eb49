# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The process between the two routers: moves packets from one TUN device to the other, later.

User space, because a kernel need not have netem; it does the same on every machine. One loop, one thread:
30 ms round trip held to the millisecond, some 500 Mbit/s on one core.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import gc
import json
import os
import select
import signal
import socket
import struct
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ironspan.lab import files
from ironspan.lab.wan.queue import Direction, Settings

# linux/if_tun.h and linux/sched.h
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_CLONE_NEWNET = 0x40000000
#: epoll wakes up to a millisecond late: letting packets go half of that early centres the error on zero.
_SLACK_S = 0.0005
#: Packets taken from one device before the other gets its turn.
_BATCH = 64
_DEVICE = "wan0"


def socket_path(folder: Path) -> Path:
    """The control socket of the lab in `folder`."""
    return folder / "run" / "wan.sock"


def settings_path(folder: Path) -> Path:
    """Where the link's settings outlive the process."""
    return folder / "wan.json"


def load_settings(folder: Path) -> Settings:
    """The settings last used, or the defaults."""
    try:
        return Settings(**json.loads(settings_path(folder).read_text()))
    except FileNotFoundError:
        return Settings()


def _open_tun(namespace: str) -> int:
    """Attach to the TUN device that the network setup made in `namespace`."""
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    there = os.open(f"/run/netns/{namespace}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(there, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter network namespace {namespace}")
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH14x", _DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
        return device
    finally:
        if libc.setns(home, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "cannot return to the own network namespace")
        os.close(there)
        os.close(home)


class Wan:
    """The link: two devices, two directions, one control socket."""

    def __init__(self, folder: Path, devices: tuple[int, int], settings: Settings) -> None:
        self.folder = folder
        self.settings = settings
        azure, rack = devices
        #: device packets come from -> (where they go, what is under way)
        self.ways = {azure: (rack, Direction(settings, 0)), rack: (azure, Direction(settings, 1))}
        self.names = {azure: "azure_to_rack", rack: "rack_to_azure"}

    def move(self, clock: float) -> float | None:
        """Let go of what is due; returns when the next packet is."""
        soonest: float | None = None
        for target, direction in self.ways.values():
            while (packet := direction.due(clock + _SLACK_S)) is not None:
                try:
                    os.write(target, packet)
                except OSError as error:
                    # The device is full, down, or this was no IP packet: as on a real line, it is gone.
                    if error.errno not in (errno.EAGAIN, errno.EIO, errno.EINVAL, errno.ENOBUFS):
                        raise
                    direction.refused()
                else:
                    direction.delivered(len(packet))
            release = direction.next_release
            if release is not None and (soonest is None or release < soonest):
                soonest = release
        return soonest

    def take(self, device: int) -> None:
        """Read what waits at `device`."""
        direction = self.ways[device][1]
        now = time.monotonic()
        for _ in range(_BATCH):
            try:
                packet = os.read(device, 65536)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EIO):
                    raise
                return
            direction.offer(packet, now)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what a control request asks and return the link's state; {"error"} when it makes no sense."""
        changes = request.get("set", {})
        try:
            settings = replace(self.settings, **changes)
        except (TypeError, ValueError) as error:
            return {"error": str(error)}
        if settings != self.settings:
            self.settings = settings
            for _, direction in self.ways.values():
                direction.apply(settings, reseed="seed" in changes)
            files.write_atomic(settings_path(self.folder), json.dumps(asdict(settings)) + "\n")
        elif "seed" in changes:
            for _, direction in self.ways.values():
                direction.apply(settings, reseed=True)
        return {"settings": asdict(self.settings), "counters": self._counters()}

    def _counters(self) -> dict[str, Any]:
        shown = {}
        for device, (_, direction) in self.ways.items():
            packets, size = direction.in_flight
            shown[self.names[device]] = {
                **direction.counters.as_dict(), "in_flight_packets": packets, "in_flight_bytes": size,
            }  # fmt: skip
        return shown


def _listen(path: Path) -> socket.socket:
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    previous = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(previous)
    listener.listen(8)
    listener.setblocking(False)
    return listener


def _converse(wan: Wan, listener: socket.socket) -> None:
    """Serve one control connection: a line in, a line out. A silent client holds packets up 50 ms at most."""
    try:
        connection, _ = listener.accept()
    except BlockingIOError:
        return
    with connection:
        connection.settimeout(0.05)
        try:
            line = connection.makefile("rb").readline(65536)
            request = json.loads(line)
            reply = wan.answer(request) if isinstance(request, dict) else {"error": "not an object"}
        except ValueError as error:
            reply = {"error": f"not a request: {error}"}
        except OSError:
            return
        with contextlib.suppress(OSError):
            connection.sendall(json.dumps(reply).encode() + b"\n")


def serve(folder: Path, azure_namespace: str, rack_namespace: str) -> None:
    """Run the link until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    wan = Wan(folder, (_open_tun(azure_namespace), _open_tun(rack_namespace)), load_settings(folder))
    listener = _listen(socket_path(folder))
    poller = select.epoll()
    for device in wan.ways:
        poller.register(device, select.EPOLLIN)
    poller.register(listener.fileno(), select.EPOLLIN)
    with contextlib.suppress(OSError):
        os.nice(-10)  # a line does not slow down because the hosts are busy
    # The loop makes no cycles: a collector's pause would only show up as jitter.
    gc.collect()
    gc.freeze()
    gc.disable()
    while True:
        soonest = wan.move(time.monotonic())
        timeout = -1.0 if soonest is None else max(0.0, soonest - _SLACK_S - time.monotonic())
        for ready, _ in poller.poll(timeout):
            if ready in wan.ways:
                wan.take(ready)
            else:
                _converse(wan, listener)
