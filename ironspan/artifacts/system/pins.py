# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Pins the wheels of a system: resolved for its own Python, apart from what runs on the controller."""

from __future__ import annotations

import collections
import pathlib
import tempfile

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file

from ironspan.artifacts import cache, wheels
from ironspan.artifacts.environments import MACHINES, Wheel
from ironspan.artifacts.system.declared import System
from ironspan.cli.outcome import CommandError, Exit

HEAD = """\
# Wheels of a system, each by its digest. Written by `ironspan artifacts pin --wheels {name}`.
"""


def pin(system: System) -> bool:
    """Resolve a system's wheels again and write the list.

    Args:
        system: the entry of the lock file.

    Returns:
        Whether the list changed.

    Raises:
        CommandError: it has none, or pip or uv failed.
    """
    if not system.wheels:
        raise CommandError(f"{system.name} has no wheels", "Name some in the lock file.", Exit.BAD_INPUT)
    digests: dict[str, set[str]] = collections.defaultdict(set)
    with tempfile.TemporaryDirectory(prefix="ironspan-pin-") as folder:
        for arch in MACHINES:
            wanted = wheels.resolved(system.wheels, arch, system.python, None)
            wheels.download(wanted, arch, system.python, pathlib.Path(folder))
        for path in pathlib.Path(folder).glob("*.whl"):
            digests[Wheel(path.name, "", "").requirement].add(cache.digest_of(path))
    lines = [
        " ".join([requirement, *(f"--hash={digest}" for digest in sorted(found))])
        for requirement, found in sorted(digests.items())
    ]
    text = HEAD.format(name=system.name) + "\n".join(lines) + "\n"
    changed = not system.pinned.is_file() or system.pinned.read_text(encoding="utf-8") != text
    if changed:
        write_file(system.pinned, text.encode())
    return changed
