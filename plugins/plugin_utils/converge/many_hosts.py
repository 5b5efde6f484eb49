# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What one run over many hosts pays per host in Ansible itself, made smaller.

ansible-playbook starts a process for every host and task, as a copy of its main process. Whatever such a
process finds out for the first time, it finds out for itself only; what the main process knew before is known
to all. The main process imports an action when it comes to the task, before the first of these processes:
that is when ``prepare`` is called. It changes how fast things go, never what is done; where ansible-core is
not as expected, nothing is changed.

Measured with 60 hosts that only answer (``tests/bench/replay.py``), CPU of the controller: 5.4 to 4.7 s.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import time
import types
import typing as t

from ansible import constants
from ansible.plugins import strategy
from ansible.plugins.loader import connection_loader, shell_loader
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.remembered import read_early
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import layers

_READ_BY_EVERY_WORKER = (
    "ansible._internal._json._profiles._legacy",
    "ansible.module_utils._internal._json._profiles._module_legacy_c2m",
    "ansible.module_utils._internal._json._profiles._module_legacy_m2c",
)
"""Modules in which ansible-core keeps how parameters and results are written as JSON, imported by name."""


def prepare() -> None:
    """Do what every worker would do, once. To be called by the main process; more often does no harm."""
    _load_early()
    read_early()
    layers.read_early()
    _poll_seldom()
    # A worker ends with its task. Looking for garbage would copy every page it shares with the main process.
    gc.freeze()
    if not _State.registered:
        os.register_at_fork(after_in_child=gc.disable)
        _State.registered = True


class _State:
    registered = False


def _load_early() -> None:
    with contextlib.suppress(Exception):
        connection_loader.get("ssh", class_only=True)
        shell_loader.get("sh", class_only=True)
    for name in _READ_BY_EVERY_WORKER:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with contextlib.suppress(Exception):
        from ansible._internal._task import UnifiedTaskResult

        # Its type hints are evaluated on first use and remembered.
        for of_module in (True, False):
            UnifiedTaskResult.get_result_key_to_resolved_field_mapping(of_module)


def _poll_seldom() -> None:
    """Let the main process honour ``internal_poll_interval`` also while all forks are taken.

    ansible-core 2.21 then asks each of them ten thousand times a second whether it has ended: most of a core,
    for as long as there are more hosts than forks. It reads the setting in every other place.
    """
    if strategy.__dict__.get("time") is time:
        strategy.time = _Clock()


class _Clock(types.ModuleType):
    """The module ``time`` for ``ansible.plugins.strategy``, with a sleep that is never too short."""

    def __init__(self) -> None:
        super().__init__("time", time.__doc__)

    def __getattr__(self, name: str) -> t.Any:
        return getattr(time, name)

    @staticmethod
    def sleep(seconds: float) -> None:
        """Sleep, at least as long as the setting says."""
        time.sleep(max(seconds, constants.DEFAULT_INTERNAL_POLL_INTERVAL))
