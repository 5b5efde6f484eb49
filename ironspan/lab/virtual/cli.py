# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""`ironspan lab servers up|down`."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

from ironspan.cli import console
from ironspan.cli.outcome import Exit
from ironspan.lab.errors import LabError
from ironspan.lab.layout import state_root
from ironspan.lab.machine import detect
from ironspan.lab.virtual import rack


def folder() -> Path:
    """Return where the files of the servers are; it is no lab of its own."""
    return Path(f"{state_root()}-servers")


def register(parent: argparse._SubParsersAction[Any]) -> None:
    """Add `servers` and its subcommands.

    Args:
        parent: the subcommands of `lab`.
    """
    parser = parent.add_parser("servers", help="virtual servers without a system, with BMCs and an Ironic")
    actions = parser.add_subparsers(title="servers commands", metavar="COMMAND", required=True)
    text = (
        "make servers that are powered off, BMCs that start them, and an Ironic that knows none of them yet"
    )
    up = actions.add_parser("up", help=text, description=text.capitalize() + ".")
    up.add_argument("--count", type=int, default=1, metavar="N", help="how many servers (default: 1)")
    up.set_defaults(func=_up)
    text = "end and remove them"
    down = actions.add_parser("down", help=text, description=text.capitalize() + ".")
    down.set_defaults(func=_down)


def _up(arguments: argparse.Namespace) -> int:
    rack.checked_count(arguments.count, 1)
    if not detect().root:
        raise LabError("run it as root (sudo): it makes a bridge")
    from ironspan.lab.virtual import world  # BMCs and their cryptography: nothing for ironspan --help

    with console.from_arguments(arguments) as display:
        found = world.up(folder(), rack.ALONE, arguments.count, display.step)
        display.note(f"expected servers: {found.expected}; factory accounts of their BMCs: {found.factory}")
        display.note(f"consoles: {found.folder / 'log'}")
    return Exit.OK


def _down(arguments: argparse.Namespace) -> int:
    from ironspan.lab.virtual import world

    with console.from_arguments(arguments) as display:
        place = folder()
        state = "done" if place.exists() else "skip"
        if place.exists():
            world.down(place)
            shutil.rmtree(place)
        display.step("servers", state, "removed" if state == "done" else "there are none")
    return Exit.OK
