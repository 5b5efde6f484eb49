# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The program ``ironspan-ironic``: what Ironic would install as commands, and what ironspan adds."""

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
CARE: t.Final = ("prepare", "backup", "backups", "drill", "restore")
"""Commands of ``ironspan.ironic.care``."""
PASSWORD = "password"
REFUSED = 2
USAGE = f"""\
usage: ironspan-ironic COMMAND [OPTION...]

  {"  ".join(COMMANDS)}   as Ironic's own commands, with their options (--config-file FILE, ...)
  {"  ".join(CARE)}   Ironic's database on a host of the role ironic (COMMAND --help)
  {PASSWORD} USER [COST]         read a password from standard input, print a line for http_basic's file
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Args:
        arguments: the command and its options; None for those of the process.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    command, options = (given[0], given[1:]) if given else ("", [])
    if command == PASSWORD and len(options) in (1, 2):
        return _password(*options)
    if command in CARE:
        from ironspan.ironic import care

        return care.main(given)
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
    from ironspan.ironic.login import hashed

    password = sys.stdin.readline().rstrip("\n").encode()
    fit = cost.isdecimal() and 4 <= int(cost) <= 31
    if not user or ":" in user or not 0 < len(password) <= 72 or not fit:
        sys.stderr.write("give a user without a colon, a cost of 4 to 31, a password of 1 to 72 bytes\n")
        return REFUSED
    sys.stdout.write(hashed(user, password, int(cost)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
