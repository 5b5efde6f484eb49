# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The site of a run, read and checked once for all its actions.

Every action is a process of its own. Reading and checking an inventory of a thousand hosts takes a process a
fifth of a second; reading what the first one has found out takes a hundredth, and nothing where the main
process has read it before it started the action's (``read_early``). It is kept in the run's
temporary folder, which only its user can read and which Ansible removes. There are no secrets in it: what the
inventory knows of secrets is where they are.
"""

from __future__ import annotations

import dataclasses
import hashlib
import multiprocessing
import os
import pickle
import re
import typing as t
from pathlib import Path

from ansible import constants
from ansible.utils.display import Display
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Host, Site

_FIELDS = tuple(field.name for field in dataclasses.fields(Host))[:-1]
"""Without the variables, which come last."""


_PREFIX = "ironspan-site-"
_REMEDY_OF_DISKS = "Is the disk of Ansible's local_tmp full?"
_REMEDY_OF_VALUES = "That is a fault of ironspan: values of the site must be plain data; report it."
_EARLY: dict[Path, Site] = {}


def read_early() -> None:
    """Read the sites that this run remembers, once for all processes that are started from now on."""
    for file in Path(constants.DEFAULT_LOCAL_TMP).glob(f"{_PREFIX}*"):
        if file not in _EARLY and (site := _read(file)):
            _EARLY[file] = site


class Remembered:
    """The place of one site in one run.

    Args:
        manager: ansible's ``InventoryManager`` of the run.
        extra_vars: variables from the command line.
        more: whatever else decides what the site is.
        folder: where it is kept; Ansible's temporary folder of this run by default.
    """

    def __init__(
        self, manager: t.Any, extra_vars: t.Mapping[str, t.Any], *more: object, folder: Path | None = None
    ) -> None:
        parent = multiprocessing.parent_process()
        # A host that the run adds to the inventory makes it another one.
        parts = (
            parent.pid if parent else os.getpid(),
            [str(source) for source in manager._sources],
            len(manager.hosts),
            sorted((str(name), repr(value)) for name, value in extra_vars.items()),
            more,
        )
        key = hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
        self._file = (folder or Path(constants.DEFAULT_LOCAL_TMP)) / f"{_PREFIX}{key}"

    def recall(self) -> Site | None:
        """Return the site, None when it has yet to be read."""
        return _EARLY.get(self._file) or _read(self._file)

    def keep(self, site: Site) -> None:
        """Remember a site that has just been read, before anything is added to it.

        Not being able to keep it costs time and nothing else, so it is a warning.
        """
        temporary = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as stream:
                pickle.dump(_compact(site), stream, protocol=pickle.HIGHEST_PROTOCOL)
            temporary.replace(self._file)
        except (OSError, pickle.PicklingError, TypeError, AttributeError) as error:
            temporary.unlink(missing_ok=True)
            # Ansible shows the same words once a run; addresses of objects differ from process to process.
            reason = re.sub(r" at 0x[0-9a-f]+", "", str(error))
            reason = str(error.strerror) if isinstance(error, OSError) else reason
            Display().warning(
                f"The site cannot be kept for the other tasks of this run, each of which reads the inventory "
                f"again: {reason}. {_REMEDY_OF_DISKS if isinstance(error, OSError) else _REMEDY_OF_VALUES}"
            )


def _read(file: Path) -> Site | None:
    try:
        site, rows, shared = pickle.loads(file.read_bytes())
    except (OSError, pickle.UnpicklingError, EOFError, TypeError, ValueError):
        return None
    site.hosts = {
        row[0]: Host(*(*row, {**shared[kind], **own} if own else shared[kind])) for row, kind, own in rows
    }
    return t.cast(Site, site)


Row = tuple[tuple[t.Any, ...], int, dict[str, t.Any]]


def _compact(site: Site) -> tuple[Site, list[Row], list[t.Mapping[str, t.Any]]]:
    """Return the site without hosts, its hosts with what variables they do not share, and the shared ones.

    Hosts of the same groups share nearly all of their hundred variables: far less has to be read.
    """
    kinds: dict[tuple[object, ...], int] = {}
    shared: list[t.Mapping[str, t.Any]] = []
    rows: list[Row] = []
    for host in site.hosts.values():
        kind = kinds.setdefault((*host.groups, "", *host.variables), len(kinds))
        if kind == len(shared):
            shared.append(host.variables)
        own = {name: value for name, value in host.variables.items() if shared[kind][name] is not value}
        rows.append((tuple(getattr(host, field) for field in _FIELDS), kind, own))
    return dataclasses.replace(site, hosts={}), rows, shared
