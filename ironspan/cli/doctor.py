# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan doctor``: one page of what is wrong with a site, and the commands that mend it."""

from __future__ import annotations

import argparse
import json
import pathlib
import typing as t

from ironspan.cli import console
from ironspan.cli.apply import add_run_options, ansible_arguments
from ironspan.cli.outcome import Exit

DOCTOR = "ironspan.hybrid.doctor"


def register(subparsers: argparse._SubParsersAction[t.Any]) -> None:
    """Add the ``doctor`` command."""
    parser = subparsers.add_parser(
        "doctor",
        help="what is wrong with the site, and what mends it",
        description="Look at every host (one execution each), the API, the store and the link, and say on "
        "one page what is wrong and which command mends it. Nothing is changed. "
        "Exit codes: 0 healthy, 1 something is wrong, 2 the inventory has problems, 4 nobody answered.",
    )
    add_run_options(parser)
    parser.add_argument("--report", metavar="FILE", help="also write the findings as JSON to this file")
    parser.set_defaults(func=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    from ironspan.cli.playbook import PlaybookRun, find_playbook, log_file, project_folder

    display = console.from_arguments(arguments)
    if arguments.limit and "localhost" not in arguments.limit:
        # The page is written on this machine, whichever hosts it is about.
        arguments.limit += ",localhost"
    project = project_folder()
    playbook = find_playbook("doctor", project)
    running = PlaybookRun(
        playbook, ansible_arguments(arguments), display, log_file("doctor"), arguments.verbose
    )
    with display:
        code = running.execute(project)
    report = running.run.results.get(DOCTOR, {}).get("report")
    if report is None:
        for line in running.run.summary() or running.output[-10:]:
            display.note(line)
        refused = any(failure.host == "localhost" for failure in running.run.failures)
        return int(Exit.BAD_INPUT if refused and code == Exit.FAILED else code)
    if display.mode == "json":
        display.event("doctor", **report)
    else:
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.page import page

        display.note(page(report))
    if arguments.report:
        text = json.dumps(report, indent=2)
        pathlib.Path(arguments.report).write_text(text + "\n", encoding="utf-8")
    return int(report["exit_code"])
