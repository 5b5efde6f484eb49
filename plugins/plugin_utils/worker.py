# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The process of Ansible's that an action runs in."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
"""linux/prctl.h"""


def end_with_the_run() -> None:
    """Have this worker told to end when ansible-playbook is gone.

    ansible-core 2.19 and newer give each worker a session of its own, so nothing else ends it: it would go
    on changing the cluster beside the run that takes over. It is SIGTERM, which Ansible's workers die of at
    once, except while they take away what they made: an interrupted ansible-playbook does not wait for that.
    Where there is no worker, or not Linux's prctl(2), nothing happens.
    """
    parent = multiprocessing.parent_process()
    if parent is None or sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent.pid:
        # It was killed before this was asked for.
        os._exit(1)
