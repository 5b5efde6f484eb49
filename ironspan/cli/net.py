# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan net check``: latency and loss between the places of a site, and what is wrong there."""

from __future__ import annotations

import argparse
import pathlib
import typing as t

from ironspan.cli.apply import add_run_options
from ironspan.cli.asked import answered

NET_CHECK = "ironspan.hybrid.net_check"


def register(subparsers: argparse._SubParsersAction[t.Any]) -> None:
    """Add the ``net`` commands."""
    parser = subparsers.add_parser("net", help="what the network between the hosts is like")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    check = commands.add_parser(
        "check",
        help="latency, loss, packet sizes, names and tables, asked of the hosts",
        description="Let hosts ask each other (one execution each) and show latency and loss by place, and "
        "what is wrong with what mends it. Nothing is changed. "
        "Exit codes: 0 well, 1 something is wrong, 2 the inventory has problems, 4 nobody answered.",
    )
    add_run_options(check)
    check.add_argument("--report", metavar="FILE", help="also write everything as JSON to this file")
    check.add_argument("--picture", metavar="FILE", help="also draw it, as SVG, to this file")
    check.set_defaults(func=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netcheck.page import page
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netcheck.picture import picture

    report, code = answered(arguments, "net_check", NET_CHECK, page)
    if report is not None and arguments.picture:
        pathlib.Path(arguments.picture).write_text(picture(report), encoding="utf-8")
    return code
