# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The program as a process of its host: when it is told to end, and what it logs."""

from __future__ import annotations

import logging
import os
import signal
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
