# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Systems as the lock file declares them, and the digest of all that decides one."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import pathlib
import re
import typing as t

if t.TYPE_CHECKING:
    from ironspan.artifacts.fields import Fields

BUILD = 1
"""Raise it when the code makes another system from the same entry, files and wheels."""
FOLDER = pathlib.Path(__file__).resolve().parent / "files"
"""What goes into systems beside packages: FOLDER/NAME/PATH; wheels are pinned in FOLDER/NAME.lock."""
MEMBERS = {
    "disk": ("disk.raw", "bom.json"),
    "ramdisk": ("kernel", "ramdisk", "esp.img", "bom.json"),
}
"""Kind -> the files that come out of it."""
LAYOUTS = ("plain", "ab")
"""What is on a disk: one root, or two of which each can start (slots.py)."""
BOTH = "slots"
"""The folder whose files are laid over a disk with two roots, beside its own."""
PROGRAM = pathlib.Path(__file__).with_name("boot_slots")
"""The program of a disk with two roots."""
PROGRAM_FOLDER = "usr/local/lib/ironspan-slot/ironspan/artifacts/system/boot_slots"
"""Where its modules are there; ``files/slots/usr/local/sbin`` has what starts it."""


@dataclasses.dataclass(frozen=True)
class System:
    """One system.

    Args:
        name: how files of the lock file call it.
        kind: disk (partitions, UEFI, ext4) or ramdisk (kernel, packed tree, EFI partition for virtual media).
        suite: of Debian.
        date: the time of everything that is newer, YYYY-MM-DD: builds repeat.
        packages: Debian packages; what they depend on comes too.
        files: folder of ``FOLDER`` whose files are laid over the packages.
        units: systemd units by what is done with them: enable, disable or mask.
        python: version of the suite's Python, where there are wheels.
        wheels: requirements in Python, NAME==VERSION; with what they need in ``FOLDER/FILES.lock``.
        drop: what is left out of the tree: patterns of paths, as dpkg's path-exclude.
        layout: of a disk: plain or ab.
    """

    name: str
    kind: str
    suite: str
    date: datetime.date
    packages: tuple[str, ...]
    files: str
    units: dict[str, tuple[str, ...]]
    python: str
    wheels: tuple[str, ...]
    drop: tuple[str, ...]
    layout: str = "plain"

    @property
    def members(self) -> tuple[str, ...]:
        """Return the names of what comes out."""
        return MEMBERS[self.kind]

    @property
    def epoch(self) -> int:
        """Return the date in seconds since 1970, UTC."""
        return int(datetime.datetime.combine(self.date, datetime.time(), datetime.UTC).timestamp())

    @property
    def folder(self) -> pathlib.Path:
        """Return where its own files are."""
        return FOLDER / self.files

    @property
    def pinned(self) -> pathlib.Path:
        """Return the list of all its wheels, as pip reads it with digests."""
        return FOLDER / f"{self.files}.lock"

    def own_files(self) -> dict[str, pathlib.Path]:
        """Return its own files: path in the system -> file, sorted."""
        folders = [self.folder, *([FOLDER / BOTH] if self.layout == "ab" else [])]
        found = {path.relative_to(top).as_posix(): path for top in folders for path in top.rglob("*")}
        if self.layout == "ab":
            found.update({f"{PROGRAM_FOLDER}/{path.name}": path for path in PROGRAM.glob("*.py")})
        # What a Python leaves beside a file that it has imported is this machine's.
        return {
            name: path
            for name, path in sorted(found.items())
            if path.is_file() and "__pycache__" not in path.parts
        }

    def recipe(self, arch: str) -> str:
        """Return a digest of everything that decides what comes out, but for the packages' versions."""
        entry = {**dataclasses.asdict(self), "date": self.date.isoformat()}
        if self.layout == "plain":
            del entry["layout"]  # systems are what they were before there was another one
        parts: list[t.Any] = [BUILD, arch, entry]
        parts += [[name, _digest(path)] for name, path in self.own_files().items()]
        # The boot loader's choice is text of that module.
        parts += [_digest(PROGRAM.with_name("slots.py"))] if self.layout == "ab" else []
        parts += [_digest(self.pinned)] if self.wheels else []
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def read(reader: Fields, name: str, data: t.Any, where: str) -> System:
    """Read one system of the lock file; what is wrong goes to the reader."""
    fields = reader.mapping(data, where, "system")
    if "like" in fields:
        reader.problem(
            f"{where}.like", f"is {fields['like']!r}, which is no system, or is like another one itself"
        )
    layout = fields.get("layout", "plain")
    if layout not in LAYOUTS:
        reader.problem(f"{where}.layout", f"is {layout!r}; it can be {' or '.join(LAYOUTS)}")
    kind = reader.text(fields, "kind", where)
    if kind not in MEMBERS:
        reader.problem(f"{where}.kind", f"is {kind!r}; it can be {' or '.join(MEMBERS)}")
        kind = "disk"
    if kind != "disk" and layout != "plain":
        reader.problem(f"{where}.layout", "only a disk has one")
    date = fields.get("date")
    if not isinstance(date, datetime.date):
        reader.problem(f"{where}.date", f"must be a date such as 2026-11-21, not {date!r}")
        date = datetime.date(1980, 1, 1)
    files = reader.text(fields, "files", where)
    if files and not (FOLDER / files).is_dir():
        reader.problem(f"{where}.files", f"there is no folder {FOLDER / files}")
    wheels = reader.listing(fields.get("wheels", []), f"{where}.wheels")
    units = {}
    for verb, names in reader.mapping(fields.get("units", {}), f"{where}.units", "system.units").items():
        units[verb] = reader.listing(names, f"{where}.units.{verb}")
        for unit in units[verb]:
            if not re.fullmatch(r"[\w@.-]+", unit):
                reader.problem(f"{where}.units.{verb}", f"{unit!r} is not the name of a systemd unit")
    return System(
        name=name,
        kind=kind,
        suite=reader.text(fields, "suite", where),
        date=date,
        packages=reader.listing(fields.get("packages"), f"{where}.packages"),
        files=files,
        units=units,
        python=reader.text(fields, "python", where, required=bool(wheels)),
        wheels=wheels,
        drop=reader.listing(fields.get("drop", []), f"{where}.drop"),
        layout=str(layout),
    )


def based(data: t.Any, others: t.Any) -> t.Any:
    """Return a system's entry with what it takes over from the one that its ``like`` names.

    Fields of its own stand instead of that one's, packages beside them. What is no mapping, or names nobody,
    comes back as it is: reading it says so.
    """
    base = others.get(data.get("like")) if isinstance(data, dict) and isinstance(others, dict) else None
    if not isinstance(base, dict) or "like" in base:
        return data
    both = {**base, **{key: value for key, value in data.items() if key != "like"}}
    lists = [entry.get("packages", []) for entry in (base, data)]
    if all(isinstance(entry, list) for entry in lists):
        both["packages"] = [*lists[0], *lists[1]]
    return both


def _digest(path: pathlib.Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
