# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan validate``: check the whole inventory on this machine, without contacting any host."""

from __future__ import annotations

import argparse
import typing as t

from ironspan.cli import console
from ironspan.cli.apply import add_run_options, ansible_arguments


def register(subparsers: argparse._SubParsersAction[t.Any]) -> None:
    """Add the ``validate`` command."""
    parser = subparsers.add_parser(
        "validate",
        help="check the inventory; contacts no host",
        description="Check every variable of every host of the inventory and name all problems at once, "
        "each with file, line and remedy. No host is contacted.",
    )
    add_run_options(parser)
    parser.set_defaults(func=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    from ironspan.cli.playbook import run_playbook

    display = console.from_arguments(arguments)
    code, _ = run_playbook("validate", "validate", ansible_arguments(arguments), display, arguments.verbose)
    return int(code)
