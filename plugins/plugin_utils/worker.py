# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Processes that end with the one that forked them: Ansible's workers, and ansible-playbook itself.

Nothing else ends them when that one is killed. ansible-core 2.19 and newer give each worker a session of its
own: it would go on changing hosts and the cluster beside the run that takes over, or wait for ever to tell
its result to nobody. ansible-runner has ansible-playbook ignore the terminal that is hung up.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterator

_PR_SET_PDEATHSIG = 1
"""linux/prctl.h"""
_LIBC = ctypes.CDLL(None, use_errno=True)
"""Loaded here: a process that was just forked from one with threads had better load nothing."""


class _State:
    registered = False
    parent = 0
    """Number of the process whose children end with it, 0 for none."""


def bind_children() -> None:
    """From now on, what this process forks gets SIGTERM when this process ends, however that happens.

    SIGTERM, because Ansible's workers pass it on to what they started and die of it at once, except while
    they take away what they made: an interrupted ansible-playbook does not wait for that. What was begun on a
    host goes on to its end there. A process that became a zombie has ended. It lasts beyond an exec; children
    of children are not meant. To be called in the main thread: for the kernel, a child ends with the thread
    that forked it. Where there is not Linux's prctl(2), nothing happens.
    """
    if sys.platform != "linux":
        return
    if not _State.registered:
        os.register_at_fork(after_in_child=_bind)
        _State.registered = True
    _State.parent = os.getpid()


@contextlib.contextmanager
def children_bound() -> Iterator[None]:
    """Do as ``bind_children``, for a while."""
    bind_children()
    try:
        yield
    finally:
        _State.parent = 0


def _bind() -> None:
    parent, _State.parent = _State.parent, 0
    if not parent:
        return
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        # It was killed before this was asked for.
        os._exit(1)
