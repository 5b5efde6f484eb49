# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan rollback`` and ``confirm``: back to an earlier document, and changes on trial."""

from __future__ import annotations

import argparse
import collections.abc
import datetime
import json
import typing as t

from ironspan.cli import console
from ironspan.cli.apply import add_check_options, add_run_options, ansible_arguments
from ironspan.cli.declared import add_operation, given
from ironspan.cli.outcome import CommandError, Exit
from ironspan.cli.pasted import command

_DIGITS = 12
"""Of a digest, shown to people; enough to name it by."""


def register(subparsers: argparse._SubParsersAction[t.Any]) -> None:
    """Add the commands."""
    rollback = subparsers.add_parser(
        "rollback",
        help="take hosts back to a document that was applied before",
        description="Run playbooks/rollback.yml: each host compares itself with the document that was "
        "applied to it before the present one, and applies that. What newer documents added is removed.",
    )
    add_operation(rollback, "rollback")
    add_run_options(rollback)
    add_check_options(rollback)
    rollback.add_argument("--list", action="store_true", help="show what was applied, and change nothing")
    rollback.set_defaults(func=run_rollback)

    confirm = subparsers.add_parser(
        "confirm",
        help="keep what `apply --try` changed",
        description="Connect again to the hosts and confirm what is on trial there. Without a confirmation "
        "each host takes it back by itself when its time is over.",
    )
    confirm.add_argument("hosts", nargs="*", metavar="HOST|GROUP", help="which hosts (all)")
    add_run_options(confirm)
    add_operation(confirm, "confirm")
    confirm.set_defaults(func=run_confirm)


def run_rollback(arguments: argparse.Namespace) -> int:
    """Run ``rollback`` and return its exit code."""
    from ironspan.cli.playbook import run_playbook

    display = console.from_arguments(arguments)
    if arguments.list:
        _limit_to(arguments, arguments.ironspan_hosts)
        return _list(arguments, display)
    options = [*ansible_arguments(arguments), "-e", json.dumps(given(arguments, "rollback"))]
    code, _ = run_playbook("rollback", "rollback", options, display, arguments.verbose)
    trial = arguments.ironspan_try
    if trial and not arguments.check:
        confirm = command("confirm", *arguments.ironspan_hosts, like=arguments)
        display.note(f"on trial for {trial}; to keep it: {confirm}")
    return int(code)


def run_confirm(arguments: argparse.Namespace) -> int:
    """Run ``confirm`` and return its exit code."""
    from ironspan.cli.playbook import run_playbook

    display = console.from_arguments(arguments)
    _limit_to(arguments, arguments.hosts)
    asked = given(arguments, "confirm")
    options = [*ansible_arguments(arguments), *(["-e", json.dumps(asked)] if asked else [])]
    code, _ = run_playbook("confirm", "confirm", options, display, arguments.verbose)
    return int(code)


def _limit_to(arguments: argparse.Namespace, hosts: list[str]) -> None:
    if hosts and arguments.limit:
        raise CommandError("hosts are named twice", "name them, or give --limit", Exit.BAD_INPUT)
    if hosts:
        arguments.limit = ",".join(hosts)


def _list(arguments: argparse.Namespace, display: console.Console) -> int:
    from ironspan.cli.playbook import run_playbook

    code, running = run_playbook(
        "rollback", "history", ansible_arguments(arguments), display, arguments.verbose
    )
    if display.mode != "json":
        for host, answer in sorted(running.run.answers.items()):
            display.note("\n".join(lines_of(host, answer)))
    return int(code)


def lines_of(host: str, answer: collections.abc.Mapping[str, t.Any]) -> list[str]:
    """Return what was applied to one host, the present document first.

    Args:
        host: its name.
        answer: the module's result in mode ``history``.
    """
    lines = [host]
    trial = answer.get("trial") or {}
    if trial:
        lines.append(f"  on trial until {_when(trial['until'])}")
    revisions = list(reversed(answer.get("revisions") or ()))
    if not revisions:
        lines.append("  nothing is kept here yet")
    for number, revision in enumerate(revisions):
        words = [revision["digest"][:_DIGITS], _when(revision["time"]), ", ".join(revision["layers"])]
        if revision.get("plans"):
            words.append(f"plan {revision['plans'][-1][:_DIGITS]}")
        if "undoes" in revision:
            words.append("by a rollback")
        lines.append(f"  {'*' if number == 0 else ' '} {'  '.join(words)}")
    for report in (answer.get("reports") or ())[-3:]:
        why = f": {report['reason']}" if report["reason"] else ""
        count = len(report["changes"])
        lines.append(f"    {_when(report['time'])} {report['outcome']}, {count} changes{why}")
    return lines


def _when(seconds: int) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
