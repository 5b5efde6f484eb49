# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan doctor``: one page of what is wrong with a site, and the commands that mend it."""

from __future__ import annotations

import argparse
import typing as t

from ironspan.cli.apply import add_run_options
from ironspan.cli.asked import answered

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
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.page import page

    return answered(arguments, "doctor", DOCTOR, page)[1]
