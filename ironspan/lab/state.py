# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a lab owns on the machine, written down before it is made.

`down` works from this file alone, so a `up` killed at any point leaves nothing that nobody knows of.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ironspan.lab import files
from ironspan.lab.errors import LabError
from ironspan.lab.layout import LABS_PER_MACHINE, Layout, state_root

SCHEMA = 1


@dataclass(frozen=True)
class Resource:
    """One thing on the machine: `kind` says how it is removed (see removal.py), `name` which one it is."""

    kind: str
    name: str


@dataclass
class State:
    """The state file of one lab."""

    layout: Layout
    wan_mtu: int
    #: Whether it emulates Azure's services, too.
    azure_services: bool = True
    #: Whether its inventory says that etcd is backed up to the emulated store.
    etcd_backup: bool = False
    #: Virtual servers on the bridge of the rack hosts.
    bare_metal: int = 0
    resources: list[Resource] = field(default_factory=list)
    _guard: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @property
    def folder(self) -> Path:
        """The lab's own folder; everything the lab keeps in files is below it."""
        return lab_folder(self.layout.name)

    def record(self, resources: Iterable[Resource]) -> None:
        """Write down what is about to be made; returns when it is safely on disk."""
        with self._guard:
            known = set(self.resources)
            fresh = [resource for resource in resources if resource not in known]
            if fresh:
                self.resources.extend(fresh)
                self.save()

    def forget(self, resources: Iterable[Resource]) -> None:
        """Strike out what has been removed; returns when it is safely on disk."""
        with self._guard:
            gone = set(resources)
            self.resources = [resource for resource in self.resources if resource not in gone]
            self.save()

    def save(self) -> None:
        """Write the state file, whole or not at all."""
        document = {
            "schema": SCHEMA,
            "name": self.layout.name,
            "index": self.layout.index,
            "azure": self.layout.azure,
            "rack": self.layout.rack,
            "wan_mtu": self.wan_mtu,
            "azure_services": self.azure_services,
            "etcd_backup": self.etcd_backup,
            "bare_metal": self.bare_metal,
            "estate": self.layout.estate,
            "resources": [[resource.kind, resource.name] for resource in self.resources],
        }
        files.write_atomic(self.folder / "state.json", json.dumps(document, indent=1) + "\n", 0o600)


def lab_folder(name: str) -> Path:
    """The folder of the lab called `name`."""
    return state_root() / name


def lab_lock(name: str) -> Path:
    """The lock that `up` and `down` of one lab hold; beside the folder because `down` removes that."""
    return state_root() / f".{name}.lock"


def load(name: str) -> State | None:
    """Read a lab's state; None when there is no such lab, LabError when the file cannot be read."""
    path = lab_folder(name) / "state.json"
    try:
        document: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (ValueError, OSError) as error:
        raise LabError(f"{path}: {error}; it is written whole, so something else changed it") from error
    if document.get("schema") != SCHEMA:
        raise LabError(f"{path}: schema {document.get('schema')!r}, this ironspan reads {SCHEMA}")
    layout = Layout(
        document["name"], document["index"], document["azure"], document["rack"], document.get("estate", 0)
    )
    resources = [Resource(kind, label) for kind, label in document["resources"]]
    # Labs of an older release have no services; a second `lab up` gives them some.
    services, backup = document.get("azure_services", True), document.get("etcd_backup", False)
    return State(layout, document["wan_mtu"], services, backup, document.get("bare_metal", 0), resources)


def all_labs() -> list[str]:
    """Names of the labs that have a folder on this machine."""
    try:
        return sorted(entry.name for entry in state_root().iterdir() if entry.is_dir())
    except FileNotFoundError:
        return []  # it goes with the last lab, maybe at this moment


def create(
    name: str,
    azure: int,
    rack: int,
    wan_mtu: int,
    taken: set[int],
    *,
    azure_services: bool = True,
    estate: int = 0,
) -> State:
    """Choose the lowest free index and write the first state file; `taken` are indexes others use.

    Index 0 is kept for the lab called "default", whose inventory is committed in inventories/lab.
    The choice happens under a lock shared by all labs, so that two `up` at once get different ones.
    """
    with files.locked(state_root() / ".index.lock"):
        used = set(taken)
        for other in all_labs():
            with contextlib.suppress(LabError):
                state = load(other)
                if state is not None:
                    used.add(state.layout.index)
        first = 0 if name == "default" else 1
        free = [index for index in range(first, LABS_PER_MACHINE) if index not in used]
        if not free:
            raise LabError(
                "all lab networks of this machine are in use; take one down: ironspan lab down --name LAB"
            )
        fresh = State(Layout(name, free[0], azure, rack, estate), wan_mtu, azure_services)
        fresh.folder.mkdir(parents=True, exist_ok=True)
        fresh.folder.chmod(0o755)
        fresh.save()
        return fresh


def tidy_root() -> None:
    """Remove the root folder with its index lock once no lab is left."""
    root = state_root()
    if not root.is_dir():
        return
    with files.locked(root / ".index.lock") as lock:
        if all(entry == lock.path for entry in root.iterdir()):
            lock.forget()
            with contextlib.suppress(OSError):
                root.rmdir()
