# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The program as a process of its host: when it is told to end, what it logs, what it tells systemd."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading


def ending() -> threading.Event:
    """Return what is set when the process is told to end (SIGTERM, SIGINT); for the main thread."""
    event = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: event.set())
    return event


def log() -> None:
    """Log to stderr from now on, with the time where no journal adds it."""
    time = "" if os.environ.get("JOURNAL_STREAM") else "%(asctime)s "
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format=f"{time}%(levelname)s %(message)s", force=True
    )
    # The Azure SDK logs every request with its headers at this level.
    logging.getLogger("azure").setLevel(logging.WARNING)


def ready() -> None:
    """Tell systemd that what waits for this program can start (Type=notify); nothing without systemd."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    # A first @ stands for the zero byte of an abstract socket (sd_notify(3)).
    name = "\0" + address[1:] if address.startswith("@") else address
    # systemd that does not hear it ends the program when its time to start is over, and says so.
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.connect(name)
        told.sendall(b"READY=1")
