# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The bill of materials of a system: CycloneDX 1.5, with every package, its version and its licences."""

from __future__ import annotations

import datetime
import json
import pathlib
import re
import typing as t

from ironspan.artifacts import environments, wheels
from ironspan.artifacts.system.declared import System


def render(system: System, arch: str, tree: pathlib.Path, brought: list[pathlib.Path]) -> str:
    """Return the bill of a system as JSON.

    Args:
        system: the entry of the lock file.
        arch: amd64 or arm64.
        tree: its tree, with dpkg's list and the packages' copyright files.
        brought: its wheels.
    """
    debian = [
        component(
            name, version, f"pkg:deb/debian/{name}@{version}?arch={arch}&distro={system.suite}",
            licences(tree / "usr/share/doc" / name / "copyright"),
        )
        for name, version in packages(tree)
    ]  # fmt: skip
    python = []
    for path in brought:
        name, version = environments.Wheel(path.name, "", "").requirement.split("==")
        python.append(component(name, version, f"pkg:pypi/{name}@{version}", [wheels.licence_of(path)]))
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": datetime.datetime.fromtimestamp(system.epoch, datetime.UTC).isoformat(),
            "component": {
                "type": "operating-system",
                "name": system.name,
                "version": system.date.isoformat(),
            },
        },
        "components": debian + python,
    }
    return json.dumps(bill, indent=1, sort_keys=True) + "\n"


def packages(tree: pathlib.Path) -> list[tuple[str, str]]:
    """Return the installed Debian packages of a tree: name and version, sorted."""
    found = []
    for entry in (tree / "var/lib/dpkg/status").read_text(encoding="utf-8").split("\n\n"):
        fields = dict(re.findall(r"^(Package|Status|Version): (.+)$", entry, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            found.append((fields["Package"], fields["Version"]))
    return sorted(found)


def licences(copyright_file: pathlib.Path) -> list[str]:
    """Return the licences that a Debian copyright file names, sorted.

    A file in the machine-readable format names them one by one. Others refer to Debian's common licences;
    one that does neither is "see its copyright file".
    """
    try:
        return licences_in(copyright_file.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return ["unknown"]


def licences_in(text: str) -> list[str]:
    """Return the licences that the text of a Debian copyright file names, sorted."""
    found = {name.strip() for name in re.findall(r"^License:[ \t]*(\S[^\n]*)$", text, re.MULTILINE)}
    found |= set(re.findall(r"/usr/share/common-licenses/([A-Za-z]+[\w.-]*\w)", text)) if not found else set()
    return sorted(found) or ["see its copyright file"]


def component(name: str, version: str, purl: str, names: list[str]) -> dict[str, t.Any]:
    """Return one package of a bill.

    Args:
        name: of the package.
        version: of it.
        purl: its package URL.
        names: of its licences.
    """
    return {
        "type": "library",
        "name": name,
        "version": version,
        "purl": purl,
        "licenses": [{"license": {"name": licence}} for licence in names],
    }
