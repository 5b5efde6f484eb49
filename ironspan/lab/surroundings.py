# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What hosts would inherit from the shell that `lab up` is started in, and must not."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def ordinary() -> Iterator[None]:
    """Make files with the ordinary modes, and start processes at nice 0, whatever the caller has.

    What is made here becomes the file system of hosts, whose services run as users of their own: with umask
    077 they could not enter `/`. Secrets have modes of their own. A host at nice 19 looks healthy and misses
    its deadlines. Where the machine does not let go of the nice value, it stays.
    """
    mask = os.umask(0o022)
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    # Of this thread: the threads that start hosts are made by it and inherit it.
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    try:
        yield
    finally:
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, nice)
        os.umask(mask)
