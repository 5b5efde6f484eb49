# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The program ``ironspan-etcd-backup``: collects the areas' commands and runs one."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterable, Sequence

from ironspan.backup import settings
from ironspan.etcd.errors import EtcdError
from ironspan.program import command
from ironspan.program.errors import ServiceError

AREAS = (
    "ironspan.backup.agent.accept",
    "ironspan.backup.agent.commands",
    "ironspan.backup.care.commands",
    "ironspan.backup.check_store",
    "ironspan.backup.gc",
    "ironspan.backup.new_epoch",
    "ironspan.backup.rebuild.commands",
    "ironspan.backup.recovery",
)
"""Modules with ``add_commands(subparsers)``; they import what is heavy only when their command runs."""


def build_parser(areas: Iterable[str] = AREAS) -> argparse.ArgumentParser:
    """Return the parser with the commands of all areas.

    An area adds parsers whose default ``func`` takes ``Settings`` and the parsed arguments and returns an
    exit code or None; ``--settings`` and ``--json`` are added to each.
    """
    parser = argparse.ArgumentParser(
        prog="ironspan-etcd-backup",
        description="Back etcd up, prove the backups, restore them, and care for the members.",
        epilog="Exit codes: 0 done, 1 failed, 2 refused before anything was changed, 130 interrupted.",
    )
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for area in areas:
        importlib.import_module(area).add_commands(subparsers)
    command.add_common(subparsers, settings.DEFAULT_PATH)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    return command.run(build_parser(), settings.load, arguments, (ServiceError, EtcdError))


if __name__ == "__main__":
    sys.exit(main())
