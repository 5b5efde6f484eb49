# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Writes ``execution-environment/requirements.txt``: of requirements.lock what jobs need, with its hashes.

``python -m tools.execution_environment`` (``--check`` compares). What a package needs is read from the
packages that are installed here, which are those of the lock.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import pathlib
import re
import sys
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE = ROOT / "execution-environment" / "requirements.txt"
PYTHONS = ("3.12", "3.13")
EXTRAS = ("azure", "cluster", "metal")
"""What the controller side of the collection needs beside the dependencies of the package."""
HEAD = "# Written by `python -m tools.execution_environment` from requirements.lock; do not edit.\n"
_ENTRY = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==")


def locked(text: str) -> dict[str, str]:
    """Return the entries of a lock by name, each with its hashes and without comments."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if match := _ENTRY.match(line):
            name = canonicalize_name(match[1])
            found[name] = []
        if name and line.strip() and not line.lstrip().startswith("#"):
            found[name].append(line)
    return {name: "\n".join(lines) for name, lines in found.items()}


def needed() -> set[str]:
    """Return the names of the distributions that jobs need, with what these need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    waiting = [Requirement(one) for one in project["dependencies"]]
    waiting += [Requirement(one) for extra in EXTRAS for one in optional[extra]]
    done: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        wanted = waiting.pop()
        key = (canonicalize_name(wanted.name), frozenset(wanted.extras))
        if key in done:
            continue
        done.add(key)
        for text in importlib.metadata.requires(wanted.name) or ():
            one = Requirement(text)
            extras = ("", *wanted.extras)
            if one.marker is None or any(
                one.marker.evaluate(
                    {"extra": extra, "python_version": python, "python_full_version": f"{python}.0"}
                )
                for extra in extras
                for python in PYTHONS
            ):
                waiting.append(one)
    return {name for name, _ in done}


def text() -> str:
    """Return the file's text."""
    entries = locked((ROOT / "requirements.lock").read_text(encoding="utf-8"))
    return HEAD + "".join(f"{entries[name]}\n" for name in sorted(needed()))


def main() -> int:
    """Write the file, or say whether it is as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tools.execution_environment", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 when it differs")
    wanted = text()
    if not parser.parse_args().check:
        FILE.write_text(wanted, encoding="utf-8")
    elif FILE.read_text(encoding="utf-8") != wanted:
        print(f"{FILE.relative_to(ROOT)} is not as requirements.lock says: run make docs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
