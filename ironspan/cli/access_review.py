# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan access review``: who can do what, what is remarkable, what is unused."""

from __future__ import annotations

import argparse
import typing as t

from ironspan.cli.apply import add_run_options
from ironspan.cli.asked import add_report_option, tabled
from ironspan.cli.declared import add_operation, given
from ironspan.cli.outcome import Exit

REVIEW = "ironspan.hybrid.access_review"


def register(subparsers: argparse._SubParsersAction[t.Any]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "review",
        help="who can do what, what is remarkable, what is unused",
        description="Run playbooks/access_review.yml, which changes nothing. Exit code 1 with "
        "--fail-on-findings when something is found that nothing explains.",
    )
    add_run_options(parser)
    add_operation(parser, "access_review")
    add_report_option(parser)
    parser.set_defaults(func=review)


def review(arguments: argparse.Namespace) -> int:
    """Run playbooks/access_review.yml and show what it found."""
    asked = given(arguments, "access_review")
    # The command itself ends with it, after the report was shown.
    fails = asked.pop("ironspan_fail_on_findings", False)
    report, code = tabled(arguments, "access", "access_review", REVIEW, "access", asked)
    if code == Exit.OK and report and fails and not report["ok"]:
        return int(Exit.FAILED)
    return int(code)
