# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The command line of a program: reads its settings, runs one command, maps how it ends to an exit code."""

from __future__ import annotations

import argparse
import json
import sys
import typing as t
from collections.abc import Callable, Sequence
from pathlib import Path

from ironspan.program import process
from ironspan.program.errors import ProgramError, ServiceError

FAILED, REFUSED, INTERRUPTED = 1, 2, 130


def answer(arguments: argparse.Namespace, data: t.Any, text: str = "") -> None:
    """Print a command's result: ``data`` with ``--json``, else ``text`` for people."""
    print(json.dumps(data, indent=1, sort_keys=True) if arguments.json else text)


def add_common(commands: t.Any, settings: Path) -> None:
    """Add ``--settings`` and ``--json`` to every command.

    Args:
        commands: what ``add_subparsers`` of the program's parser has returned, with all commands.
        settings: the file where ``--settings`` names no other.
    """
    for command in commands.choices.values():
        command.add_argument("--settings", type=Path, default=settings, metavar="FILE")
        command.add_argument("--json", action="store_true", help="print the result as JSON")


def run[Settings](
    parser: argparse.ArgumentParser,
    load: Callable[[Path], Settings],
    arguments: Sequence[str] | None,
    failures: tuple[type[ProgramError], ...] = (ServiceError,),
) -> int:
    """Run a command and return the exit code.

    Args:
        parser: has commands whose default ``func`` takes the settings and the parsed arguments and returns an
            exit code or None.
        load: reads a settings file.
        arguments: of the command line; None for the process's own.
        failures: errors of what the program asks, which count as a failure. Others are refusals: nothing was
            changed.
    """
    parsed = parser.parse_args(arguments)
    process.log()
    try:
        return parsed.func(load(parsed.settings), parsed) or 0
    except ProgramError as error:
        if parsed.json:
            problem = {"kind": type(error).__name__, "message": error.message, "remedy": error.remedy}
            print(json.dumps({"error": problem}, indent=1))
        print(f"{parser.prog}: {error.message}", file=sys.stderr)
        if error.remedy:
            print(f"  {error.remedy}", file=sys.stderr)
        return FAILED if isinstance(error, failures) else REFUSED
    except KeyboardInterrupt:
        return INTERRUPTED
