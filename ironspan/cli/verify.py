# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan verify``: prove that the cluster works, and show the evidence."""

from __future__ import annotations

import argparse
import json
import pathlib
import typing as t

from ironspan.cli import console
from ironspan.cli.apply import add_run_options, ansible_arguments
from ironspan.cli.asked import add_report_option


def register(subparsers: argparse._SubParsersAction[t.Any]) -> None:
    """Add the ``verify`` command."""
    parser = subparsers.add_parser(
        "verify",
        help="prove that the cluster works",
        description="Run playbooks/verify.yml: nodes Ready at the right version, etcd healthy and one "
        "cluster, names resolved, pods (runc and gVisor) on every worker reaching each other.",
    )
    add_run_options(parser)
    add_report_option(parser)
    parser.set_defaults(func=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    from ironspan.cli.playbook import run_playbook
    from ironspan.cli.report import VERIFY

    display = console.from_arguments(arguments)
    options = ansible_arguments(arguments)
    code, running = run_playbook("verify", "verify", options, display, arguments.verbose)
    report = running.run.results.get(VERIFY, {}).get("report")
    if report and display.mode != "json" and not arguments.verbose:
        display.note(as_text(report))
    if arguments.report and report:
        text = json.dumps(report, indent=2)
        pathlib.Path(arguments.report).write_text(text + "\n", encoding="utf-8")
    return int(code)


def as_text(report: dict[str, t.Any]) -> str:
    """Return a report's tables from its machine-readable form."""
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.report import Check, Report

    checks = [Check(**check) for check in report["checks"]]
    return Report(report["site"], report["started"], report["seconds"], checks).as_text()
