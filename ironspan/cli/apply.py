# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan apply``: run site.yml (or another playbook) with a progress display."""

from __future__ import annotations

import argparse
import pathlib
import typing as t

from ironspan.cli import console


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Give a command the options of everything that runs a playbook."""
    parser.add_argument(
        "-i", "--inventory", action="append", default=[], help="inventory file or folder (may repeat)"
    )
    parser.add_argument("--limit", help="only these hosts and groups (Ansible's pattern)")
    parser.add_argument(
        "-e", "--extra-vars", action="append", default=[], metavar="NAME=VALUE", help="set a variable"
    )
    parser.add_argument("--forks", type=int, help="hosts worked on at the same time")
    parser.add_argument("-v", "--verbose", action="store_true", help="show Ansible's own output")


def ansible_arguments(arguments: argparse.Namespace) -> list[str]:
    """Return the options for ``ansible-playbook`` that the command line asks for."""
    result: list[str] = []
    for inventory in arguments.inventory:
        # Ansible runs in the project folder: a path that exists here must mean the same there.
        path = pathlib.Path(inventory)
        result += ["-i", str(path.resolve()) if path.exists() else inventory]
    for name, option in (("limit", "--limit"), ("forks", "--forks")):
        value = getattr(arguments, name, None)
        if value is not None:
            result += [option, str(value)]
    for variable in arguments.extra_vars:
        result += ["-e", variable]
    for name in ("check", "diff"):
        if getattr(arguments, name, False):
            result.append(f"--{name}")
    return result


def register(subparsers: argparse._SubParsersAction[t.Any]) -> None:
    """Add the ``apply`` command."""
    parser = subparsers.add_parser(
        "apply",
        help="make the hosts match the inventory",
        description="Run playbooks/site.yml, or another playbook, and show it by phase and host.",
    )
    parser.add_argument("playbook", nargs="?", default="site", help="name or path of a playbook (site)")
    add_run_options(parser)
    parser.add_argument("--check", action="store_true", help="say what would change, change nothing")
    parser.add_argument("--diff", action="store_true", help="show the text that changes")
    parser.set_defaults(func=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    from ironspan.cli.playbook import run_playbook

    display = console.from_arguments(arguments)
    options = ansible_arguments(arguments)
    code, _ = run_playbook("apply", arguments.playbook, options, display, arguments.verbose)
    return int(code)
