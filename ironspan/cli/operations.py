# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan node remove rack-7`` and the like: a command for each operation, made from its declaration.

Operations whose answers are shown in a way of their own have their commands in other files here; what they
can be asked for comes from the declaration there too.
"""

from __future__ import annotations

import argparse
import json
import typing as t

from ironspan.cli import apply
from ironspan.cli.declared import add_operation, catalogue, escaped, given

if t.TYPE_CHECKING:
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import Operation

_GROUPS = {
    "node": "workers: add, remove, replace",
    "member": "members of etcd and control planes: add, remove, replace",
    "bmc": "management controllers of servers: accounts, power, lights, logs",
    "cni": "the pod network of a running cluster",
    "encryption": "how secrets are encrypted in etcd",
    "runtime": "what sandboxes cost",
}
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
    parser = subparsers.add_parser(word, help=escaped(operation.summary), description=about(operation))
    add_operation(parser, operation.name)
    apply.add_run_options(parser)
    apply.add_check_options(parser)
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
    return escaped(" ".join(part for part in parts if part))


def run(arguments: argparse.Namespace) -> int:
    """Run the operation's playbook as ``ironspan apply`` does, and return its exit code."""
    operation: Operation = arguments.operation
    asked = given(arguments, operation.name)
    return apply.run(
        argparse.Namespace(
            **{
                **vars(arguments),
                "playbook": operation.name,
                "extra_vars": [*arguments.extra_vars, *([json.dumps(asked)] if asked else [])],
                # These are among what is asked already.
                "ironspan_allow_destructive": None,
                "ironspan_try": None,
            }
        )
    )
