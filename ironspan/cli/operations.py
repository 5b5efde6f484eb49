# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan node remove rack-7`` and the like: a command for each operation, made from its declaration.

Operations whose answers are shown in a way of their own have their commands in other files here; what they
can be asked for comes from the declaration there too.
"""

from __future__ import annotations

import argparse
import collections.abc
import json
import pathlib
import typing as t

from ironspan.cli import apply
from ironspan.cli.declared import catalogue

if t.TYPE_CHECKING:
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import Argument, Operation

_GROUPS = {
    "node": "workers: add, remove, replace",
    "member": "members of etcd and control planes: add, remove, replace",
    "bmc": "management controllers of servers: accounts, power, lights, logs",
    "cni": "the pod network of a running cluster",
    "encryption": "how secrets are encrypted in etcd",
    "runtime": "what sandboxes cost",
}
_SHAPES = {"time": "TIME", "file": "FILE", "int": "NUMBER", "hosts": "HOST", "list": "TEXT", "str": "TEXT"}
_CONSENTS = {
    "steps": "Steps that cannot be undone need --allow-destructive.",
    "always": "It needs consent.",
}


def register(subparsers: argparse._SubParsersAction[t.Any]) -> None:
    """Add the commands of all operations that have none yet. Comes after the commands written by hand."""
    for operation in catalogue().OPERATIONS.values():
        if operation.command:
            _register(subparsers, operation)


def _register(subparsers: argparse._SubParsersAction[t.Any], operation: Operation) -> None:
    *groups, word = operation.command
    for group in groups:
        subparsers = _group(subparsers, group)
    if word in subparsers.choices:
        return
    parser = subparsers.add_parser(word, help=_escaped(operation.summary), description=about(operation))
    add_arguments(
        parser, (entry for entry in operation.arguments if entry not in catalogue().common.EVERYWHERE)
    )
    apply.add_run_options(parser)
    parser.add_argument("--check", action="store_true", help="say what would change, change nothing")
    parser.add_argument("--diff", action="store_true", help="show the text that changes")
    parser.set_defaults(func=run, operation=operation)


def _group(subparsers: argparse._SubParsersAction[t.Any], word: str) -> argparse._SubParsersAction[t.Any]:
    if word not in subparsers.choices:
        made = subparsers.add_parser(word, help=_GROUPS.get(word, ""), description=_GROUPS.get(word))
        made.add_subparsers(title="operations", metavar="OPERATION", required=True)
    actions = subparsers.choices[word]._actions
    return next(action for action in actions if isinstance(action, argparse._SubParsersAction))


def about(operation: Operation) -> str:
    """Return what an operation does, where, and with whose consent, for its help."""
    parts = [
        f"{operation.summary[:1].upper()}{operation.summary[1:]}.",
        operation.details,
        f"Hosts: {operation.hosts or 'none, only the cluster is asked'}.",
        "" if operation.changes else "Changes nothing.",
        _CONSENTS.get(operation.consent, ""),
        f"The same as: ironspan apply {operation.name}.",
    ]
    return _escaped(" ".join(part for part in parts if part))


def add_arguments(parser: argparse.ArgumentParser, arguments: collections.abc.Iterable[Argument]) -> None:
    """Give a command what an operation can be asked for; values are kept under the variables' names.

    Args:
        parser: of the command.
        arguments: those that it is given.
    """
    for argument in arguments:
        if argument.positional:
            parser.add_argument(
                argument.name,
                metavar=argument.option,
                nargs=_count(argument),
                help=help_of(argument),
                **_kind(argument),
            )
        elif argument.type == "bool":
            parser.add_argument(
                f"--{argument.word}",
                dest=argument.name,
                action="store_true" if argument.default is False else argparse.BooleanOptionalAction,
                default=None,
                help=help_of(argument),
            )
        else:
            parser.add_argument(
                f"--{argument.word}",
                dest=argument.name,
                required=argument.required,
                metavar=None if argument.choices else _SHAPES[argument.type],
                help=help_of(argument),
                **({"action": "append"} if argument.type in ("list", "hosts") else _kind(argument)),
            )


def _count(argument: Argument) -> str | None:
    if argument.type in ("list", "hosts"):
        return "+" if argument.required else "*"
    return None if argument.required else "?"


def _kind(argument: Argument) -> dict[str, t.Any]:
    if argument.choices:
        return {"choices": argument.choices}
    return {"type": int} if argument.type == "int" else {}


def help_of(argument: Argument) -> str:
    """Return what an argument is, with its default and how a list is written."""
    shown = argument.default if argument.default not in (None, False, "", ()) else None
    more = "; may repeat" if argument.type in ("list", "hosts") and not argument.positional else ""
    if argument.choices and argument.positional:
        more = f": {', '.join(argument.choices)}"
    return _escaped(f"{argument.what}{more}{f' ({shown})' if shown is not None else ''}")


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


def given(arguments: argparse.Namespace, operation: Operation) -> dict[str, t.Any]:
    """Return what the command line says of an operation's arguments, as variables for its playbook.

    Args:
        arguments: of the command line.
        operation: which one.
    """
    found: dict[str, t.Any] = {}
    for argument in operation.arguments:
        value = getattr(arguments, argument.name, None)
        if value in (None, []):
            continue
        if argument.type == "file":
            # Ansible runs in the project's folder.
            value = str(pathlib.Path(value).expanduser().resolve())
        found[argument.name] = ",".join(value) if argument.type == "hosts" else value
    return found


def run(arguments: argparse.Namespace) -> int:
    """Run the operation's playbook as ``ironspan apply`` does, and return its exit code."""
    operation: Operation = arguments.operation
    asked = given(arguments, operation)
    return apply.run(
        argparse.Namespace(
            **{
                **vars(arguments),
                "playbook": operation.name,
                "extra_vars": [*arguments.extra_vars, *([json.dumps(asked)] if asked else [])],
                "allow_destructive": False,
                "trial": None,
            }
        )
    )
