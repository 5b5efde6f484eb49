# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Takes back a trial that nobody confirmed: systemd starts it on the host, from the code kept there.

It is a program of its own: without Ansible, it makes the packages that the engine's imports go through.
"""

from __future__ import annotations

import os
import sys
import types

PROGRAM = "_unattended.py"
"""The name of this file."""
PACKAGE = "ansible_collections.ironspan.hybrid.plugins.module_utils"


def root_of(folder: str) -> str:
    """Return the root of the host whose kept code is in a folder.

    Raises:
        SystemExit: it is no such folder.
    """
    root, found, _ = folder.partition("/var/lib/ironspan/code/")
    if not found:
        raise SystemExit("this program runs from /var/lib/ironspan/code only")
    return root or "/"


def make_packages(folder: str) -> None:
    """Let the collection be imported from a folder that holds its host side only."""
    parts = PACKAGE.split(".")
    for count in range(1, len(parts) + 1):
        module = types.ModuleType(".".join(parts[:count]))
        module.__path__ = [folder] if count == len(parts) else []
        sys.modules[module.__name__] = module


def main(arguments: list[str]) -> int:
    """Undo the trial with this id and number.

    Args:
        arguments: of the command line: id, and how often the timer had been set.

    Returns:
        The exit status; systemd tries again after any but 0.
    """
    folder = os.path.dirname(os.path.abspath(__file__))
    make_packages(folder)
    from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.engine import run

    expired = {"id": arguments[0], "arm": int(arguments[1])}
    result = run({"mode": "revert", "expired": expired, "root": root_of(folder)})
    print(result.get("msg") or "nothing is on trial any more")
    return 1 if result.get("failed") else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
