# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Stops the controller at a chosen boundary of a run, so that whoever watches can kill it exactly there."""

from __future__ import annotations

import os
import pathlib
import signal
import typing as t

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: stop_at
type: aggregate
short_description: Counts the boundaries of a run and stops at one of them
description: Boundaries are the starts of plays and tasks, the results of hosts, and the end.
"""
AT, COUNT = "IRONSPAN_TEST_STOP_AT", "IRONSPAN_TEST_BOUNDARIES"


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Counts events; sends itself SIGSTOP at the chosen one, and at the end writes how many there were."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "stop_at"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._seen: list[str] = []
        self._at = int(os.environ.get(AT, "0"))

    def _count(self, what: str) -> None:
        self._seen.append(what)
        if len(self._seen) == self._at:
            os.kill(os.getpid(), signal.SIGSTOP)

    def v2_playbook_on_play_start(self, play: t.Any) -> None:
        """Count the start of a phase."""
        self._count(f"play {play.get_name()}")

    def v2_playbook_on_task_start(self, task: t.Any, is_conditional: bool) -> None:
        """Count the start of a task."""
        self._count(f"task {task.get_name()}")

    def v2_runner_on_start(self, host: t.Any, task: t.Any) -> None:
        """Count the start of a task on a host."""
        self._count(f"start {host.get_name()} {task.get_name()}")

    def v2_runner_on_ok(self, result: t.Any) -> None:
        """Count the answer of a host."""
        self._count("answer")

    def v2_playbook_on_stats(self, stats: t.Any) -> None:
        """Count the end, and tell how many boundaries there were."""
        self._count("end")
        if os.environ.get(COUNT):
            pathlib.Path(os.environ[COUNT]).write_text("\n".join(self._seen) + "\n")
