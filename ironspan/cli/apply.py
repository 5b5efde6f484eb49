# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan apply``: run site.yml (or another playbook) with a progress display."""

from __future__ import annotations

import argparse
import json
import pathlib
import typing as t

from ironspan.cli import console, inventory
from ironspan.cli.declared import add_arguments, catalogue
from ironspan.cli.outcome import CommandError, Exit
from ironspan.cli.pasted import command


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Give a command the options of everything that runs a playbook."""
    inventory.add_option(parser)
    parser.add_argument("--limit", help="only these hosts and groups (Ansible's pattern)")
    parser.add_argument(
        "-e", "--extra-vars", action="append", default=[], metavar="NAME=VALUE", help="set a variable"
    )
    parser.add_argument("--forks", type=int, help="hosts worked on at the same time")
    parser.add_argument("-v", "--verbose", action="store_true", help="show Ansible's own output")


def add_check_options(parser: argparse.ArgumentParser) -> None:
    """Give a command the options that only show what would be done."""
    parser.add_argument("--check", action="store_true", help="say what would change, change nothing")
    parser.add_argument("--diff", action="store_true", help="show the text that changes")


def ansible_arguments(arguments: argparse.Namespace) -> list[str]:
    """Return the options for ``ansible-playbook`` that the command line asks for."""
    result: list[str] = []
    for named in arguments.inventory:
        # Ansible runs in the project folder: a path that exists here must mean the same there.
        path = pathlib.Path(named)
        result += ["-i", str(path.resolve()) if path.exists() else named]
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
        description="Run playbooks/site.yml, or another playbook, and show it by phase and host. "
        "With a plan file, apply exactly that plan.",
    )
    parser.add_argument(
        "playbook", nargs="?", default="site", help="name or path of a playbook (site), or a plan file"
    )
    add_run_options(parser)
    add_check_options(parser)
    add_arguments(parser, (catalogue().common.ALLOW_DESTRUCTIVE, catalogue().common.TRY))
    parser.set_defaults(func=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    from ironspan.cli.playbook import run_playbook
    from ironspan.cli.report import VALIDATE

    display = console.from_arguments(arguments)
    options = ansible_arguments(arguments)
    playbook = arguments.playbook
    if is_plan(playbook):
        if arguments.limit and "localhost" not in arguments.limit:
            # The plan is checked on this machine, whichever hosts it is about.
            arguments.limit += ",localhost"
        options = ansible_arguments(arguments)
        file = pathlib.Path(playbook).resolve()
        playbook, planned = operation_of(file)
        options += ["-e", json.dumps({**planned, "ironspan_plan": str(file)})]
    trial = arguments.ironspan_try
    if trial:
        if playbook != "site":
            raise CommandError(f"{playbook} cannot be tried", "try site, or a plan of it", Exit.BAD_INPUT)
        playbook = "try"
        options += ["-e", json.dumps({"ironspan_try": trial})]
    if consented := arguments.ironspan_allow_destructive:
        options += ["-e", json.dumps({catalogue().common.ALLOW_DESTRUCTIVE.name: consented})]
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.keep import ENDS

    code, running = run_playbook("apply", playbook, options, display, arguments.verbose, {ENDS: "1"})
    if trial and not arguments.check and running.run.changes:
        confirm = command("confirm", like=arguments)
        display.note(f"what changed is on trial for {trial}; to keep it: {confirm}")
    checked = running.run.results.get(VALIDATE, {})
    kept = checked.get("kept")
    if kept:
        if checked.get("inventory_moved"):
            display.note("! the inventory was changed after the plan was made; the plan was applied as it is")
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.keep import report

        report(pathlib.Path(kept), event="end", code=int(code), log=str(running.log), **running.run.as_dict())
        display.note(f"report: {kept}")
    return int(code)


def operation_of(file: pathlib.Path) -> tuple[str, dict[str, t.Any]]:
    """Return the playbook that a plan is for, and the variables that it was made with.

    A file that is no plan is left to the run to refuse.
    """
    try:
        plan = json.loads(file.read_bytes())["plan"]
        operation, arguments = plan["operation"], dict(plan["arguments"])
    except (OSError, ValueError, KeyError, TypeError):
        return "site", {}
    return (operation, arguments) if isinstance(operation, str) and operation.isidentifier() else ("site", {})


def is_plan(name: str) -> bool:
    """Tell whether an argument is a plan file and not a playbook, whatever the file was called."""
    if name.endswith(".plan.json"):
        return True
    like_a_file = ("/" in name or "." in name) and not name.endswith((".yml", ".yaml"))
    return like_a_file and pathlib.Path(name).is_file()
