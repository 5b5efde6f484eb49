# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the main process does once for all its workers."""

from __future__ import annotations

import gc
import os
import time
import types

import pytest
from ansible import constants
from ansible.plugins import strategy
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge import many_hosts


def test_the_main_process_does_not_ask_its_workers_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "DEFAULT_INTERNAL_POLL_INTERVAL", 0.05)
    monkeypatch.setattr(strategy, "time", time)
    many_hosts.prepare()
    began = time.monotonic()
    strategy.time.sleep(0.0001)
    assert time.monotonic() - began >= 0.05
    assert strategy.time.monotonic is time.monotonic
    assert time.sleep is not strategy.time.sleep, "nobody else sleeps longer"


def test_another_ansible_core_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    other = types.SimpleNamespace(sleep=None)
    monkeypatch.setattr(strategy, "time", other)
    monkeypatch.setattr(many_hosts, "_READ_BY_EVERY_WORKER", ("ansible.there_is_no_such_module",))
    many_hosts.prepare()
    assert strategy.time is other


def test_a_worker_does_not_look_for_garbage() -> None:
    many_hosts.prepare()
    worker = os.fork()
    if worker == 0:
        os._exit(int(gc.isenabled()))
    assert os.waitpid(worker, 0)[1] == 0
    assert gc.isenabled()


def test_what_every_worker_reads_is_still_there() -> None:
    """A name that ansible-core has given up would make every worker slower, and nothing else would tell."""
    for name in many_hosts._READ_BY_EVERY_WORKER:
        __import__(name)
