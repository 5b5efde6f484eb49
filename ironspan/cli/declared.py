# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The declarations of operations, read before Ansible is there; options of commands are made of them."""

from __future__ import annotations

import argparse
import collections.abc
import functools
import pathlib
import sys
import typing as t

if t.TYPE_CHECKING:
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import Argument

LISTS = ("list", "hosts", "files")
_SHAPES = {
    "time": "TIME",
    "file": "FILE",
    "files": "FILE",
    "int": "NUMBER",
    "hosts": "HOST",
    "list": "TEXT",
    "str": "TEXT",
}


@functools.cache
def catalogue() -> t.Any:
    """Return the package of declarations, with its module ``common``.

    Parsers are made of it at every start. Commands that load Ansible's plugins do so later, and its loader
    insists on being the first to import the collection: so what was imported here is forgotten again.
    """
    before = set(sys.modules)
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils import catalogue as found
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue import common  # noqa: F401

    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "ansible_collections":
            del sys.modules[name]
    return found


def add_operation(
    parser: argparse.ArgumentParser, name: str, *, but: collections.abc.Collection[str] = ()
) -> None:
    """Give a command what an operation can be asked for.

    Args:
        parser: of the command.
        name: of the operation.
        but: variables for which the command has options of its own, or none.
    """
    left_out = {entry.name for entry in catalogue().common.EVERYWHERE}.union(but)
    operation = catalogue().OPERATIONS[name]
    add_arguments(parser, (entry for entry in operation.arguments if entry.name not in left_out))


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
                *([f"-{argument.short}"] if argument.short else []),
                f"--{argument.word}",
                dest=argument.name,
                required=argument.required,
                metavar=argument.words or (None if argument.choices else _SHAPES[argument.type]),
                help=help_of(argument),
                **_many(argument),
            )


def _count(argument: Argument) -> str | None:
    if argument.type in LISTS:
        return "+" if argument.required else "*"
    return None if argument.required else "?"


def _many(argument: Argument) -> dict[str, t.Any]:
    if argument.words:
        return {"nargs": len(argument.words)}
    return {"action": "append"} if argument.type in LISTS else _kind(argument)


def _kind(argument: Argument) -> dict[str, t.Any]:
    if argument.choices:
        return {"choices": argument.choices}
    return {"type": int} if argument.type == "int" else {}


def _path(text: str) -> str:
    # Ansible runs in the project's folder.
    return str(pathlib.Path(text).expanduser().resolve())


def help_of(argument: Argument) -> str:
    """Return what an argument is, with its default and how a list is written."""
    shown = argument.default if argument.default not in (None, False, "", ()) else None
    more = "; may repeat" if argument.type in LISTS and not (argument.positional or argument.words) else ""
    if argument.choices and argument.positional:
        more = f": {', '.join(argument.choices)}"
    return escaped(f"{argument.what}{more}{f' ({shown})' if shown is not None else ''}")


def escaped(text: str) -> str:
    return text.replace("%", "%%")


def given(arguments: argparse.Namespace, name: str) -> dict[str, t.Any]:
    """Return what the command line says of an operation's arguments, as variables for its playbook.

    Args:
        arguments: of the command line.
        name: of the operation.
    """
    found: dict[str, t.Any] = {}
    for argument in catalogue().OPERATIONS[name].arguments:
        value = getattr(arguments, argument.name, None)
        if value in (None, []):
            continue
        if argument.type in ("file", "files"):
            value = _path(value) if argument.type == "file" else [_path(each) for each in value]
        found[argument.name] = ",".join(value) if argument.type == "hosts" else value
    return found
