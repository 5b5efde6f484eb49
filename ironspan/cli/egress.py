# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan egress``: what pods may reach outside the cluster, as hosts have it in force."""

from __future__ import annotations

import argparse
import json
import pathlib
import typing as t

from ironspan.cli import console
from ironspan.cli.apply import add_run_options, ansible_arguments
from ironspan.cli.asked import add_report_option
from ironspan.cli.outcome import Exit

REPORT = "ironspan.hybrid.egress_report"


def register(subparsers: argparse._SubParsersAction[t.Any]) -> None:
    """Add the ``egress`` command."""
    parser = subparsers.add_parser(
        "egress",
        help="what pods may reach outside the cluster",
        description="What pods may reach outside the cluster, as it is in force. See docs/egress.md.",
    )
    actions = parser.add_subparsers(title="subcommands", metavar="SUBCOMMAND", required=True)
    shown = actions.add_parser(
        "show",
        help="the rules in force on every host",
        description="Rules in force on every host with owner, reason, last day and packets, and what was "
        "dropped. Exit code 1 when a host's table is missing or is not what its file says.",
    )
    add_run_options(shown)
    add_report_option(shown)
    shown.set_defaults(func=show)


def show(arguments: argparse.Namespace) -> int:
    """Run playbooks/egress_show.yml and show what it found."""
    from ironspan.cli.playbook import run_playbook

    display = console.from_arguments(arguments)
    if arguments.limit and "localhost" not in arguments.limit:
        # The report is made on this machine, whichever hosts it is about.
        arguments.limit += ",localhost"
    options = ansible_arguments(arguments)
    code, running = run_playbook("egress", "egress_show", options, display, arguments.verbose)
    answer = running.run.results.get(REPORT, {})
    report = answer.get("report")
    if report is None:
        return int(code)
    if display.mode == "json":
        display.event("egress", **report)
    else:
        display.note(answer["text"])
    if arguments.report:
        pathlib.Path(arguments.report).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return int(Exit.FAILED if code == Exit.OK and not report["ok"] else code)
