# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Commands that ask something by a playbook and get a report: of hosts, or of the controller alone."""

from __future__ import annotations

import argparse
import json
import pathlib
import typing as t

from ironspan.cli import console
from ironspan.cli.apply import ansible_arguments
from ironspan.cli.outcome import Exit

Report = dict[str, t.Any]


def add_report_option(parser: argparse.ArgumentParser) -> None:
    """Give a command the option for its whole answer as a file, which the command writes itself."""
    parser.add_argument("--report", metavar="FILE", help="also write everything as JSON to this file")


def answered(
    arguments: argparse.Namespace, playbook: str, action: str, page: t.Callable[[Report], str]
) -> tuple[Report | None, int]:
    """Run a playbook that changes nothing, show its report, and write it where it is asked for.

    Args:
        arguments: of the command line, with ``apply.add_run_options`` and ``add_report_option``.
        playbook: its name without the suffix.
        action: the action whose result has the report, by its full name.
        page: makes text of a report.

    Returns:
        The report, None when there is none, and the exit code.
    """
    from ironspan.cli.playbook import PlaybookRun, find_playbook, log_of_user, project_folder

    display = console.from_arguments(arguments)
    if arguments.limit and "localhost" not in arguments.limit:
        # The page is written on this machine, whichever hosts it is about.
        arguments.limit += ",localhost"
    project = project_folder()
    path = find_playbook(playbook, project)
    name = playbook.replace("_", "-")
    running = PlaybookRun(path, ansible_arguments(arguments), display, log_of_user(name), arguments.verbose)
    with display:
        code = running.execute(project)
    report: Report | None = running.run.results.get(action, {}).get("report")
    if report is None:
        for line in running.run.summary() or running.output[-10:]:
            display.note(line)
        refused = any(failure.host == "localhost" for failure in running.run.failures)
        return None, int(Exit.BAD_INPUT if refused and code == Exit.FAILED else code)
    if display.mode == "json":
        display.event(name, **report)
    else:
        display.note(page(report))
    if arguments.report:
        text = json.dumps(report, indent=2)
        pathlib.Path(arguments.report).write_text(text + "\n", encoding="utf-8")
    return report, int(report["exit_code"])


def tabled(
    arguments: argparse.Namespace,
    command: str,
    playbook: str,
    action: str,
    event: str,
    asked: t.Mapping[str, t.Any],
) -> tuple[Report | None, Exit]:
    """Run a playbook of the controller's, show its text, and write its report where it is asked for.

    Args:
        arguments: of the command line, with ``apply.add_run_options`` and ``add_report_option``.
        command: the command, which names the log.
        playbook: its name without the suffix.
        action: the action whose result has ``report`` and ``text``, by its full name.
        event: name of the report among the events of ``--json``.
        asked: variables for the playbook.

    Returns:
        The report, None when there is none, and the exit code of the run.
    """
    from ironspan.cli.playbook import run_playbook

    display = console.from_arguments(arguments)
    options = [*ansible_arguments(arguments), "-e", json.dumps(asked)]
    code, running = run_playbook(command, playbook, options, display, arguments.verbose)
    answer = running.run.results.get(action, {})
    report: Report | None = answer.get("report")
    if report and display.mode == "json":
        display.event(event, **report)
    elif report and not arguments.verbose:
        display.note(answer["text"])
    if report and arguments.report:
        text = json.dumps(report, indent=2)
        pathlib.Path(arguments.report).write_text(text + "\n", encoding="utf-8")
    return report, code
