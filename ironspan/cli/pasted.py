# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Commands that are printed to be pasted: with the inventory and variables as given, quoted for the shell."""

from __future__ import annotations

import argparse
import pathlib
import shlex


def command(*words: str, like: argparse.Namespace | None = None) -> str:
    """Return a command of ironspan's as a line for the shell.

    Args:
        words: the command and its own arguments.
        like: a command line whose inventories and variables it shall have.
    """
    more: list[str] = []
    if like is not None:
        for option, name in (("-i", "inventory"), ("-e", "extra_vars")):
            for value in getattr(like, name, ()):
                more += [option, value]
    return shlex.join(["ironspan", *words, *more])


def path_from_here(path: pathlib.Path) -> str:
    """Return a path as one would write it here: from the current folder if it is below it, else absolute."""
    path = path.absolute()
    try:
        near = path.relative_to(pathlib.Path.cwd())
    except ValueError:
        return str(path)
    # A name that begins with a dash would be taken for an option, a bare word for a playbook.
    bare = len(near.parts) == 1 and "." not in near.name.lstrip(".")
    return f"./{near}" if bare or str(near).startswith("-") else str(near)
