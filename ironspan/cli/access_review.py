# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan access review``: who can do what, what is remarkable, what is unused."""

from __future__ import annotations

import argparse
import pathlib
import typing as t

from ironspan.cli.apply import add_run_options
from ironspan.cli.asked import tabled
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
    parser.add_argument(
        "--audit-log",
        action="append",
        default=[],
        metavar="FILE",
        help="audit log of an API server, on this machine, plain or compressed with gzip (may repeat): "
        "bindings that nobody used are named then",
    )
    parser.add_argument(
        "--can",
        nargs=2,
        metavar=("VERB", "RESOURCE"),
        help="only who may do this, such as: create pods/exec",
    )
    parser.add_argument("-n", "--namespace", default="", help="where, for --can (in any)")
    parser.add_argument("--subject", default="", metavar="TEXT", help="only subjects with this in their name")
    parser.add_argument("--all", action="store_true", help="also bindings that every cluster has")
    parser.add_argument("--report", metavar="FILE", help="also write everything as JSON to this file")
    parser.add_argument("--fail-on-findings", action="store_true", help="exit code 1 when there are any")
    parser.set_defaults(func=review)


def review(arguments: argparse.Namespace) -> int:
    """Run playbooks/access_review.yml and show what it found."""
    asked = {
        # Ansible runs in the project's folder.
        "ironspan_audit_logs": [str(pathlib.Path(name).resolve()) for name in arguments.audit_log],
        "ironspan_can": arguments.can or [],
        "ironspan_namespace": arguments.namespace,
        "ironspan_subject": arguments.subject,
        "ironspan_everything": arguments.all,
    }
    report, code = tabled(arguments, "access", "access_review", REVIEW, "access", asked)
    if code == Exit.OK and report and arguments.fail_on_findings and not report["ok"]:
        return int(Exit.FAILED)
    return int(code)
