# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The program ``ironspan-ironic``: what Ironic's packages would install as commands of their own."""

from __future__ import annotations

import importlib
import sys
import typing as t
from collections.abc import Sequence

COMMANDS: t.Final = {
    "run": ("ironic", "ironic.command.singleprocess"),
    "dbsync": ("ironic-dbsync", "ironic.command.dbsync"),
    "manage": ("ironic-manage", "ironic.command.manage"),
    "status": ("ironic-status", "ironic.command.status"),
}
"""Our name of a command -> what Ironic calls it, and the module whose ``main()`` it is."""
PASSWORD = "password"
REFUSED = 2
USAGE = f"""\
usage: ironspan-ironic COMMAND [OPTION...]

  {"  ".join(COMMANDS)}   as Ironic's own commands, with their options (--config-file FILE, ...)
  {PASSWORD} USER [COST]         read a password from standard input, print a line for http_basic's file
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of Ironic's commands and return its exit code.

    Args:
        arguments: the command and its options; None for those of the process.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    command, options = (given[0], given[1:]) if given else ("", [])
    if command == PASSWORD and len(options) in (1, 2):
        return _password(*options)
    if command not in COMMANDS:
        sys.stderr.write(USAGE)
        return REFUSED
    name, module = COMMANDS[command]
    sys.argv = [name, *options]  # its parsers of options read it from there
    return importlib.import_module(module).main() or 0


def _password(user: str, cost: str = "12") -> int:
    """Print a user and the hash of the password that standard input has, as Ironic's http_basic reads it.

    Args:
        user: without a colon.
        cost: of bcrypt, 4 to 31. Ironic pays it with each request: a long random password needs little.
    """
    password = sys.stdin.readline().rstrip("\n").encode()
    fit = cost.isdecimal() and 4 <= int(cost) <= 31
    if not user or ":" in user or not 0 < len(password) <= 72 or not fit:
        sys.stderr.write("give a user without a colon, a cost of 4 to 31, a password of 1 to 72 bytes\n")
        return REFUSED
    bcrypt = importlib.import_module("bcrypt")
    sys.stdout.write(f"{user}:{bcrypt.hashpw(password, bcrypt.gensalt(int(cost))).decode()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
