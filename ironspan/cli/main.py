# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The ``ironspan`` command: collects the parts' subcommands, runs one, maps its end to an exit code."""

from __future__ import annotations

import argparse
import collections.abc
import importlib
import sys
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import ActionableError

import ironspan
from ironspan.cli import console, environment
from ironspan.cli.outcome import CommandError, Exit

PARTS = (
    "ironspan.cli.init",
    "ironspan.cli.validate",
    "ironspan.cli.apply",
    "ironspan.cli.plan",
    "ironspan.cli.back",
    "ironspan.cli.verify",
    "ironspan.cli.status",
    "ironspan.cli.serve",
    "ironspan.cli.certs",
    "ironspan.cli.access",
    "ironspan.cli.backup",
    "ironspan.cli.doctor",
    "ironspan.cli.egress",
    "ironspan.cli.net",
    "ironspan.cli.gpu",
    "ironspan.cli.awx",
    "ironspan.cli.azure",
    "ironspan.cli.operations",
    "ironspan.artifacts.cli",
    "ironspan.lab.cli",
    "ironspan.cli.shell",
)
"""Modules with ``register(subparsers)``; they import what is heavy only when their command runs."""


def build_parser(parts: collections.abc.Iterable[str] = PARTS) -> argparse.ArgumentParser:
    """Return the parser with the subcommands of all parts.

    A part that this installation lacks (for example the lab, on an execution environment) leaves its
    command out; a part that is there and broken raises its own ImportError.
    """
    parser = argparse.ArgumentParser(
        prog="ironspan",
        description="Build and run a two-site Kubernetes cluster: validate, apply, verify; and its lab.",
        epilog="Exit codes: 0 done, 1 a change failed and was rolled back, 2 input refused, "
        "3 the run was cut off, 4 a host unreachable or unfit, 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"ironspan {ironspan.__version__}")
    parser.set_defaults(json=False, plain=False)
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for part in parts:
        try:
            module = importlib.import_module(part)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{part}.".startswith(f"{error.name}."):
                raise
            continue
        module.register(subparsers)
    for command in _runnable(subparsers):
        console.add_output_options(command)
    return parser


def main(arguments: collections.abc.Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code (see ``Exit``)."""
    parsed = build_parser().parse_args(arguments)
    if ignored := environment.settle():
        print(
            f"ironspan: ignored: {', '.join(ignored)} (ansible.cfg says how this project runs)",
            file=sys.stderr,
        )
    try:
        return int(parsed.func(parsed))
    except ActionableError as error:
        print(f"ironspan: {error.message}", file=sys.stderr)
        if error.remedy:
            print(f"          {error.remedy}", file=sys.stderr)
        return int(error.code if isinstance(error, CommandError) else Exit.FAILED)
    except KeyboardInterrupt:
        print("ironspan: interrupted; running the same command again resumes", file=sys.stderr)
        return int(Exit.INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output went away (`ironspan ... | head`): nobody is left to tell.
        sys.stderr.close()
        return int(Exit.FAILED)


def _runnable(
    subparsers: argparse._SubParsersAction[t.Any],
) -> collections.abc.Iterator[argparse.ArgumentParser]:
    for parser in set(subparsers.choices.values()):
        nested = [item for item in parser._actions if isinstance(item, argparse._SubParsersAction)]
        for item in nested:
            yield from _runnable(item)
        # One with subcommands may do something by itself.
        if not nested or parser.get_default("func"):
            yield parser


if __name__ == "__main__":
    sys.exit(main())
