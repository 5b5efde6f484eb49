# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How each kind of resource is removed. Removing what is not there, or only half there, is no error."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from ironspan.lab import cgroups, host, mirror, mounts, network, processes
from ironspan.lab.errors import LabError
from ironspan.lab.state import Resource
from ironspan.lab.virtual import world


def _process(folder: Path, name: str) -> None:
    pid = processes.running(folder, name)
    if pid is not None and processes.kill([pid]):
        raise LabError(f"process {pid} ({name}) does not end", exit_code=1)


def _mount(_: Path, name: str) -> None:
    mounts.unmount_below(Path(name))


def _tree(_: Path, name: str) -> None:
    mounts.remove_tree(Path(name))


def _mirror(folder: Path, _: str) -> None:
    mirror.stop(folder)


def _servers(folder: Path, name: str) -> None:
    world.down(folder / name)


_REMOVERS: dict[str, Callable[[Path, str], None]] = {
    "process": _process,
    "unit": lambda _, name: host.stop_unit(name),
    "cgroup": lambda _, name: cgroups.remove(name),
    "mount": _mount,
    "tree": _tree,
    "link": lambda _, name: network.remove_link(name),
    "namespace": lambda _, name: network.remove_namespace(name),
    "nft_table": lambda _, name: network.remove_table(name),
    "mirror": _mirror,
    "servers": _servers,
}
#: Everything that can still make or hold something goes first; the rest follows in reverse order of making.
_FIRST = ("servers", "mirror", "unit", "process", "cgroup")


def order(resources: list[Resource]) -> list[Resource]:
    """The order to remove `resources` in."""
    backwards = list(reversed(resources))
    early = [r for kind in _FIRST for r in backwards if r.kind == kind]
    return early + [r for r in backwards if r.kind not in _FIRST]


def tidy_run_folders() -> None:
    """Remove the folders that systemd-nspawn made for its own use, once they are empty."""
    top = Path("/run/systemd/nspawn")
    for path in (top / "propagate", top / "unix-export", top):
        with contextlib.suppress(OSError):
            path.rmdir()


def remove_all(folder: Path, resources: list[Resource], done: Callable[[Resource], None]) -> None:
    """Remove everything; goes on past what fails and raises LabError naming all that is left at the end."""
    processes.end(folder)
    try:
        remove_each(folder, resources, done)
    finally:
        # A process killed above may have been starting another one.
        processes.end(folder)


def remove_each(
    folder: Path, resources: list[Resource], done: Callable[[Resource], None], again: str = "lab down"
) -> None:
    """Remove these and nothing else of the lab; goes on past what fails.

    Args:
        folder: the lab's folder.
        resources: what to remove.
        done: called after each.
        again: the command that goes on where this stopped.

    Raises:
        LabError: names all that is left at the end.
    """
    problems = []
    for resource in order(resources):
        try:
            _REMOVERS[resource.kind](folder, resource.name)
        except Exception as error:  # whatever one thing's removal raises, the rest has to go
            problems.append(f"{resource.kind} {resource.name}: {error}")
        else:
            done(resource)
    if problems:
        raise LabError(
            f"not everything could be removed; run `{again}` again:\n  " + "\n  ".join(problems), 1
        )
