# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Many converged hosts from one: installing a thousand would take an hour on a small machine.

What differs between two workers after an install is the name and the address in the engine's own state.
"""

from __future__ import annotations

import os
import pathlib
import shutil

from tests.bench.hosts import Hosts

STATE = pathlib.PurePath("var/lib/ironspan/state.json")
OWN = ("var/lib/ironspan", "run", "etc", "proc")
"""Folders in which files may be written in place; all others are hard links until they are replaced."""


def copy_to_all(hosts: Hosts) -> None:
    """Give every host a copy of the first one's root, as if it had been installed itself."""
    first = hosts.names[0]
    for index, name in enumerate(hosts.names[1:], start=1):
        _copy(hosts.root(first), hosts.root(name))
        state = hosts.root(name) / STATE
        text = state.read_text(encoding="utf-8").replace(first, name)
        state.write_text(text.replace(_others(hosts, 0), _others(hosts, index)), encoding="utf-8")


def _others(hosts: Hosts, index: int) -> str:
    return f'\\"{hosts.site_address(index)}\\"'


def _copy(source: pathlib.Path, target: pathlib.Path) -> None:
    def put(here: str, there: str) -> str:
        name = str(pathlib.Path(here).relative_to(source))
        if name.startswith(OWN) or pathlib.Path(here).is_symlink():
            return str(shutil.copy2(here, there, follow_symlinks=False))
        os.link(here, there)
        return there

    shutil.copytree(source, target, symlinks=True, copy_function=put)
