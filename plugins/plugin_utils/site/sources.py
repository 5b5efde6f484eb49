# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which files Ansible reads of an inventory, and which only look as if it did.

The rules are Ansible's: an inventory folder is read file by file, but for names that it ignores
(``parse_source`` of ``inventory/manager.py``); of the variables of a group or host the first of NAME,
NAME.yml, NAME.yaml and NAME.json counts, whether file or folder (``find_vars_files`` of
``parsing/dataloader.py``). What it passes over, it passes over without a word.
"""

from __future__ import annotations

import os
import re
import stat
import typing as t
from collections.abc import Sequence
from pathlib import Path

from ansible import constants
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import (
    Place,
    Problems,
    nearest,
)

VARIABLE_FOLDERS = ("group_vars", "host_vars")
SUFFIXES = (".yml", ".yaml", ".json")
"""Of files of variables, in the order in which Ansible looks for them; a name without one comes first."""
_ALWAYS_IGNORED = (r"^\.", r"^(host_vars|group_vars|vars_plugins)$")
_HARMLESS = re.compile(r"^\.|^(README|LICENSE|COPYING|Makefile|CODEOWNERS)\b|\.(md|rst|txt)$", re.IGNORECASE)
_COPIES = re.compile(r"(~|\.(bak|old|orig|save|swp|rej|tmp|dist|disabled|off|\d+))$", re.IGNORECASE)
_KINDS = {
    stat.S_ISFIFO: "a FIFO",
    stat.S_ISSOCK: "a socket",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
}


def _ignored() -> re.Pattern[str]:
    """Return what Ansible ignores in an inventory folder, by its settings."""
    endings = (f"{re.escape(ending)}$" for ending in constants.INVENTORY_IGNORE_EXTS)
    return re.compile("|".join((*_ALWAYS_IGNORED, *constants.INVENTORY_IGNORE_PATTERNS, *endings)))


class Source(t.NamedTuple):
    """A file that Ansible reads.

    Args:
        path: the file.
        variables_of: (``group_vars`` or ``host_vars``, name) for a file of variables; None for an inventory.
    """

    path: Path
    variables_of: tuple[str, str] | None = None


class Sources:
    """The files of an inventory.

    Args:
        given: files and folders, as given to ``ansible-playbook -i``; lists of host names
            and what inventory plugins take are left out.
    """

    def __init__(self, given: Sequence[str]) -> None:
        self.read: list[Source] = []
        self.problems = Problems()
        self.missing = Problems()
        self._ignored = _ignored()
        self._seen: set[Path] = set()
        for name in given:
            path = Path(name)
            if path.is_dir():
                self._inventory_folder(path)
                self._variables_beside(path)
            elif path.exists():
                self._add(path)
                self._misspelt_beside(path.parent)
                self._variables_beside(path.parent)
            elif "," not in name and "/" in name:
                message, remedy = "there is no such file or folder", "name an inventory that exists"
                self.missing.add(Place(name, 0), "(inventory)", message, remedy)

    def _refuse(self, path: Path, message: str, remedy: str) -> None:
        self.problems.add(Place(str(path), 0), "(file)", message, remedy)

    def _add(self, path: Path, variables_of: tuple[str, str] | None = None) -> None:
        if path in self._seen:
            return
        self._seen.add(path)
        mode = path.stat().st_mode
        what = next((word for test, word in _KINDS.items() if test(mode)), "")
        if what:
            self._refuse(path, f"is {what}, and reading it may never end", "write a file there")
        elif not os.access(path, os.R_OK):
            self._refuse(path, "cannot be read by you", "give yourself the right to read it, or move it away")
        else:
            self.read.append(Source(path, variables_of))

    def _entries(self, folder: Path) -> list[Path]:
        try:
            entries = sorted(folder.iterdir())
        except OSError as error:
            self._refuse(folder, f"cannot be read: {error.strerror}", "give yourself the right to read it")
            return []
        for entry in entries:
            if entry.is_symlink() and not entry.exists() and not entry.name.startswith("."):
                self._refuse(entry, "is a link to a file that is not there", "correct the link, or remove it")
        return [entry for entry in entries if entry.exists()]

    def _inventory_folder(self, folder: Path) -> None:
        for entry in self._entries(folder):
            name = entry.name
            if self._ignored.search(name):
                stem = _COPIES.sub("", name)
                if stem != name and (folder / stem).suffix in SUFFIXES and not (folder / stem).exists():
                    self._refuse(
                        entry, "is not read: Ansible ignores copies", f"name it {stem}, or move it away"
                    )
                continue
            if (near := _misspelt_folder(name)) and entry.is_dir():
                self._refuse(entry, "is no folder of variables", f"name it {near}")
            elif entry.is_dir():
                self._inventory_folder(entry)
            elif _HARMLESS.search(name):
                self._refuse(entry, "would be read as an inventory", "move it away, or end its name with .md")
            else:
                self._add(entry)

    def _variables_beside(self, folder: Path) -> None:
        for kind in VARIABLE_FOLDERS:
            beside = folder / kind
            if beside.is_dir():
                self._named(beside, kind)
            elif beside.exists():
                self._refuse(
                    beside,
                    "is a file, so nobody reads it",
                    f"make it a folder with files such as {kind}/NAME.yml",
                )

    def _misspelt_beside(self, folder: Path) -> None:
        """Name the folders beside a file of hosts that were meant to have variables."""
        for entry in sorted(folder.iterdir()):
            if entry.is_dir() and (near := _misspelt_folder(entry.name)):
                self._refuse(entry, "is no folder of variables", f"name it {near}")

    def _named(self, folder: Path, kind: str) -> None:
        """Take what Ansible takes of ``group_vars`` or ``host_vars``, and name the rest."""
        candidates: dict[str, list[Path]] = {}
        for entry in self._entries(folder):
            if entry.name.startswith("."):
                continue
            if entry.suffix in SUFFIXES and (kind == "host_vars" or not _COPIES.search(entry.stem)):
                candidates.setdefault(entry.stem, []).append(entry)
            elif (
                _meant_as_variables(entry) and entry.is_file()
            ):  # in host_vars copies are hosts that are not there
                self._unread(entry)
            elif not _HARMLESS.search(entry.name) and (not entry.suffix or kind == "host_vars"):
                candidates.setdefault(entry.name, []).append(entry)
        for name, found in candidates.items():
            first, *others = sorted(found, key=_order)
            for other in others:
                self._refuse(
                    other,
                    f"does not count: of the variables of {name} only {first.name} is read",
                    f"move its lines to {first.name}"
                    + ("" if first.is_file() else f"/{other.name if other.suffix else 'main.yml'}"),
                )
            if first.is_dir():
                self._below(first, (kind, name))
            else:
                self._add(first, (kind, name))

    def _below(self, folder: Path, variables_of: tuple[str, str]) -> None:
        for entry in self._entries(folder):
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                if entry.suffix:
                    self._refuse(entry, "is not read: its name has a dot", "name it without one")
                else:
                    self._below(entry, variables_of)
            elif _meant_as_variables(entry):
                self._unread(entry)
            elif not _HARMLESS.search(entry.name) and entry.suffix in ("", *SUFFIXES):
                self._add(entry, variables_of)

    def _unread(self, entry: Path) -> None:
        ending = entry.suffix.strip().lower()
        if ending in SUFFIXES and not _COPIES.search(entry.stem):
            remedy = f"name it {entry.stem}{ending}"
        elif Path(entry.stem).suffix in SUFFIXES and ending == ".txt":
            remedy = f"name it {entry.stem}"
        elif _COPIES.search(entry.name) or _COPIES.search(entry.stem):
            remedy = "move copies out of the inventory"
        else:
            remedy = f"name it {entry.stem}.yml, or move it away"
        self._refuse(
            entry, "is not read: Ansible reads .yml, .yaml, .json and names without an ending", remedy
        )


def _meant_as_variables(path: Path) -> bool:
    """Tell whether somebody may believe that a file, which Ansible does not read, is one of variables.

    Files of data (``servers.csv``) stand beside those that name them.
    """
    ending, inner = path.suffix.strip(), Path(path.stem).suffix
    return (
        bool(_COPIES.search(path.name))
        or (ending in SUFFIXES and bool(_COPIES.search(path.stem)))
        or (ending.lower() in SUFFIXES and path.suffix not in SUFFIXES)
        or (ending.lower() == ".txt" and inner in SUFFIXES)
        or ending.lower() in (".ini", ".cfg", ".conf", ".toml", ".j2")
    )


def _order(path: Path) -> int:
    return 0 if path.suffix not in SUFFIXES else 1 + SUFFIXES.index(path.suffix)


def _misspelt_folder(name: str) -> str | None:
    """Return the folder of variables that a name was meant to be, None when it is none or right."""
    if name in VARIABLE_FOLDERS:
        return None
    folded = re.sub(r"[^a-z]", "", name.lower())
    for known in VARIABLE_FOLDERS:
        kind = known.split("_")[0]
        if re.fullmatch(rf"{kind}s?(var|vars|variable|variables)", folded):
            return known
    return nearest(name, VARIABLE_FOLDERS) if "var" in folded else None


def program_of(path: Path) -> tuple[str, str] | tuple[()] | None:
    """Return what is wrong with a program that prints hosts, () where nothing is; None for another file.

    Args:
        path: a file of an inventory.
    """
    runs = bool(path.stat().st_mode & 0o111) and os.access(path, os.X_OK)
    with path.open("rb") as stream:
        first = stream.readline(512).decode("utf-8", "replace")
    words = first[2:].split() if first.startswith("#!") else []
    if words and not runs and path.suffix not in SUFFIXES:
        return "is a program (#!) that may not be executed, and no inventory otherwise", "run chmod +x on it"
    if words and runs and path.suffix not in SUFFIXES and not Path(words[0]).exists():
        return f"is run by {words[0]}, which is not there", "install it, or correct the first line"
    return () if runs else None
