# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Many converged hosts from one: installing a thousand would take an hour on a small machine.

What differs between two workers after an install is their name and address, in the engine's own state and in
/etc/hosts.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil

from tests.bench.hosts import Hosts

NAMING = ("var/lib/ironspan/state.json", "etc/hosts")
"""Files with the name and the address of the host."""
OWN = ("var/lib/ironspan", "run", "etc", "proc")
"""Folders in which files may be written in place; all others are hard links until they are replaced."""


def copy_to_all(hosts: Hosts) -> None:
    """Give every host a copy of the first one's root, as if it had been installed itself."""
    first = hosts.names[0]
    address = re.compile(rf"(?<![\d.]){re.escape(hosts.site_address(0))}(?![\d.])")
    for index, name in enumerate(hosts.names[1:], start=1):
        _copy(hosts.root(first), hosts.root(name))
        for file in (hosts.root(name) / path for path in NAMING):
            text = file.read_text(encoding="utf-8").replace(first, name)
            file.write_text(address.sub(hosts.site_address(index), text), encoding="utf-8")


def _copy(source: pathlib.Path, target: pathlib.Path) -> None:
    def put(here: str, there: str) -> str:
        name = str(pathlib.Path(here).relative_to(source))
        if name.startswith(OWN) or pathlib.Path(here).is_symlink():
            return str(shutil.copy2(here, there, follow_symlinks=False))
        os.link(here, there)
        return there

    shutil.copytree(source, target, symlinks=True, copy_function=put)
