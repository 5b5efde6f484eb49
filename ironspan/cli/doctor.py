# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan doctor``: one page of what is wrong with a site, and the commands that fix it."""

from __future__ import annotations

import argparse
import re
import shlex
import typing as t

from ironspan.cli.apply import add_run_options
from ironspan.cli.asked import add_report_option, answered

DOCTOR = "ironspan.hybrid.doctor"
INVENTORIED = ("apply", "plan", "confirm", "doctor", "status", "verify", "backup accept")
"""Commands that remedies name and that are about an inventory."""


def register(subparsers: argparse._SubParsersAction[t.Any]) -> None:
    """Add the ``doctor`` command."""
    parser = subparsers.add_parser(
        "doctor",
        help="what is wrong with the site, and what fixes it",
        description="Look at every host (one execution each), the API, etcd and the link, and say on "
        "one page what is wrong and which command fixes it. Nothing is changed. "
        "Exit codes: 0 healthy, 1 something is wrong, 2 the inventory has problems, 4 nobody answered.",
    )
    add_run_options(parser)
    add_report_option(parser)
    parser.set_defaults(func=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.page import page

    return answered(
        arguments, "doctor", DOCTOR, lambda report: with_inventory(page(report), arguments.inventory)
    )[1]


def with_inventory(text: str, given: list[str]) -> str:
    """Return a page whose commands are about the inventories that were given, so that they can be pasted."""
    options = "".join(f" -i {shlex.quote(name)}" for name in given)
    known = "|".join(INVENTORIED)
    return re.sub(rf"\bironspan ({known})\b", lambda command: command[0] + options, text) if given else text
