# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Writes the report of a run that is not one of ``ironspan``: of ``ansible-playbook``, or a job of AWX."""

from __future__ import annotations

import contextlib
import os
import pathlib
import sys
import time
import typing as t

from ansible import context
from ansible.plugins.callback import CallbackBase

from ironspan.cli.playbook import REPORTED, log_file
from ironspan.cli.report import Run
from ironspan.cli.run_record import Recorder

DOCUMENTATION = """
name: ironspan_report
type: aggregate
short_description: A page and a JSON file of each run
description:
  - Writes what runs of C(ironspan) leave, for playbooks that C(ansible-playbook) or a controller runs.
    See docs/reports.md.
  - Runs of C(ironspan) write their own, and this does nothing there.
requirements:
  - Named in C(callbacks_enabled).
  - The pip package C(ironspan), in the Python that runs Ansible.
options:
  folder:
    description: Where reports are written. Empty means the folder of C(ironspan), below C(XDG_STATE_HOME).
    type: str
    default: ""
    env: [{name: IRONSPAN_REPORT_FOLDER}]
    ini: [{section: ironspan_report, key: folder}]
"""


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Hands what Ansible tells to what ``ironspan`` makes reports of."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "ironspan_report"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self.disabled = REPORTED in os.environ
        self._recorder: Recorder | None = None
        self._run = Run(again="the same command")
        self._began: dict[tuple[str, str], float] = {}

    def v2_playbook_on_start(self, playbook: t.Any) -> None:
        """Begin a report, unless its folder cannot be used: the run matters more."""
        name = pathlib.Path(str(playbook._file_name)).stem
        arguments = ["--check"] if context.CLIARGS.get("check") else []
        words = [pathlib.Path(sys.argv[0]).name, *sys.argv[1:]]
        try:
            folder = str(self.get_option("folder") or "")
            log = log_file(name, pathlib.Path(folder).expanduser() if folder else None)
            self._recorder = Recorder(self._run, name, arguments, log, words, has_log=False)
        except OSError as error:
            self._display.warning(f"no report of this run: {error.filename} cannot be used: {error.strerror}")

    def v2_playbook_on_play_start(self, play: t.Any) -> None:
        """Begin a phase."""
        self._take("playbook_on_play_start", {"name": play.get_name().strip()})

    def v2_runner_on_start(self, host: t.Any, task: t.Any) -> None:
        """Note when a host began a task."""
        self._began[(host.get_name(), str(task._uuid))] = time.monotonic()

    def v2_runner_on_ok(self, result: t.Any) -> None:
        """Count what was changed."""
        self._take("runner_on_ok", self._data(result))

    def v2_runner_on_failed(self, result: t.Any, ignore_errors: bool = False) -> None:
        """Keep why a host failed."""
        self._take("runner_on_failed", {**self._data(result), "ignore_errors": ignore_errors})

    def v2_runner_on_unreachable(self, result: t.Any) -> None:
        """Keep why a host did not answer."""
        self._take("runner_on_unreachable", self._data(result))

    def v2_playbook_on_stats(self, stats: t.Any) -> None:
        """Write the report."""
        kinds = ("ok", "changed", "failures", "dark", "processed")
        self._take("playbook_on_stats", {kind: dict(getattr(stats, kind)) for kind in kinds})
        if self._recorder is None:
            return
        status = 2 if stats.failures or stats.dark else 0
        told = self._recorder.finish(self._run.exit_code(status))
        # Ansible's output goes to people and into the controller's job; the path is of use in both.
        self._display.display(f"report: {told}")

    def _take(self, kind: str, data: dict[str, t.Any]) -> None:
        if self._recorder is None:
            return
        event = {"event": kind, "event_data": data}
        # An answer that nobody foresaw costs a line of the report, and not the run.
        with contextlib.suppress(Exception):
            outcome = self._run.take(event)
            self._recorder.take(event)
            self._recorder.tell(force=bool(outcome and outcome.phase))

    def _data(self, result: t.Any) -> dict[str, t.Any]:
        # Ansible has emptied results of tasks with no_log before callbacks get them.
        host, task = result.host.get_name(), result.task
        began = self._began.pop((host, str(task._uuid)), None)
        return {
            "host": host,
            "task": task.name or task.action,
            "task_action": task.action,
            "resolved_action": getattr(task, "resolved_action", None) or task.action,
            "res": result.result,
            "duration": time.monotonic() - began if began is not None else 0.0,
        }
