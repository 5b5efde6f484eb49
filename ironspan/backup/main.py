# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The program ``ironspan-etcd-backup``: collects the areas' commands, runs one, maps its end to a code."""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import sys
import typing as t
from collections.abc import Iterable, Sequence
from pathlib import Path

from ironspan.backup import settings
from ironspan.etcd.errors import EtcdError
from ironspan.program.errors import ProgramError, ServiceError

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

FAILED, REFUSED, INTERRUPTED = 1, 2, 130


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
    for command in subparsers.choices.values():
        command.add_argument("--settings", type=Path, default=settings.DEFAULT_PATH, metavar="FILE")
        command.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def answer(arguments: argparse.Namespace, data: t.Any, text: str = "") -> None:
    """Print a command's result: ``data`` with ``--json``, else ``text`` for people."""
    print(json.dumps(data, indent=1, sort_keys=True) if arguments.json else text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parsed = build_parser().parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s", force=True
    )
    # The Azure SDK logs every request with its headers at this level.
    logging.getLogger("azure").setLevel(logging.WARNING)
    try:
        return parsed.func(settings.load(parsed.settings), parsed) or 0
    except ProgramError as error:
        if parsed.json:
            problem = {"kind": type(error).__name__, "message": error.message, "remedy": error.remedy}
            print(json.dumps({"error": problem}, indent=1))
        print(f"ironspan-etcd-backup: {error.message}", file=sys.stderr)
        if error.remedy:
            print(f"  {error.remedy}", file=sys.stderr)
        return FAILED if isinstance(error, ServiceError | EtcdError) else REFUSED
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
