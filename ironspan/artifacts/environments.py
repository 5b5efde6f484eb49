# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Programs in Python that hosts run: this tree's code and the wheels it needs, as the lock file pins them."""

from __future__ import annotations

import dataclasses
import fnmatch
import hashlib
import json
import pathlib
import re
import typing as t

if t.TYPE_CHECKING:
    from ironspan.artifacts.fields import Fields

WHEEL = re.compile(
    r"(?P<name>\w+)-(?P<version>[\w.!+]+)-(?P<python>[\w.]+)-(?P<abi>\w+)-(?P<platform>[\w.]+)\.whl"
)
"""The file name of a wheel (binary distribution format, PyPA specifications)."""
BUILD = 1
"""Raised when the same wheels and code would be packed in another way."""
COMMON = "common"
ROOT = pathlib.Path(__file__).resolve().parents[2]
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
"""Architecture as Go, Debian and OCI call it -> as the kernel calls it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Wheel:
    """One wheel, pinned.

    Args:
        file: its file name, which tells name, version and what it runs on.
        sha256: hexadecimal.
        licence: as its metadata say.
    """

    file: str
    sha256: str
    licence: str

    @property
    def requirement(self) -> str:
        """Return NAME==VERSION, as pip takes it."""
        parts = self._parts()
        return f"{parts['name']}=={parts['version']}"

    @property
    def folder(self) -> str:
        """Return which Pythons it is for: ``common`` for all, else its tag, such as ``cp313``."""
        abi = self._parts()["abi"]
        return abi if abi.startswith("cp") else COMMON

    def fits(self, arch: str) -> bool:
        """Say whether it runs on an architecture (amd64, arm64)."""
        platform = self._parts()["platform"]
        return platform == "any" or platform.endswith(MACHINES[arch])

    def _parts(self) -> dict[str, str]:
        found = WHEEL.fullmatch(self.file)
        assert found, self.file  # checked when the lock file was read
        return found.groupdict()


@dataclasses.dataclass(frozen=True)
class Environment:
    """A program in Python with everything it needs but the interpreter.

    Args:
        name: how files of the lock file call it.
        module: has ``main()``; it runs when the program is started.
        packages: packages and modules of this tree that it consists of, those of the collection by their full
            names.
        extra: of pyproject.toml: what its wheels are resolved from.
        pythons: versions of Python on hosts, such as 3.13.
        wheels: the wheels, of all architectures.
        own_versions: whether it has versions of its own, and not those of requirements.lock.
        leave_out: patterns (fnmatch) of files of its wheels that it does not need.
    """

    name: str
    module: str
    packages: tuple[str, ...]
    extra: str
    pythons: tuple[str, ...]
    wheels: tuple[Wheel, ...]
    own_versions: bool = False
    leave_out: tuple[str, ...] = ()

    def needs(self, member: str) -> bool:
        """Say whether a file of a wheel belongs into the program."""
        return not any(fnmatch.fnmatchcase(member, pattern) for pattern in self.leave_out)

    def wheels_for(self, arch: str) -> list[Wheel]:
        """Return the wheels that belong into the program for an architecture."""
        return [wheel for wheel in self.wheels if wheel.fits(arch)]

    def code(self) -> dict[str, pathlib.Path]:
        """Return this tree's part: name in the archive -> file, sorted."""
        found: dict[str, pathlib.Path] = {}
        for package in self.packages:
            top, place = _place(package)
            parents = [parent / "__init__.py" for parent in place.parents if parent.is_relative_to(top)]
            inside = [path for path in place.rglob("*") if path.suffix in (".py", ".json", ".pyi", ".yml")]
            module = place.with_suffix(".py")
            for path in (path for path in (*parents, module, *inside) if path.is_file()):
                found[path.relative_to(top).as_posix()] = path
        return dict(sorted(found.items()))

    def recipe(self, arch: str) -> str:
        """Return a digest of everything that decides what comes out; empty where no wheel is pinned."""
        wheels = self.wheels_for(arch)
        if not wheels:
            return ""
        launcher = pathlib.Path(__file__).with_name("launcher.py")
        parts: list[t.Any] = [BUILD, arch, self.module, self.pythons]
        parts += [sorted(dataclasses.astuple(wheel)[:2] for wheel in wheels)]
        parts += [self.leave_out] if self.leave_out else []
        parts += [[name, _digest(path)] for name, path in {**self.code(), "launcher": launcher}.items()]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def read(reader: Fields, name: str, data: t.Any, where: str) -> Environment:
    """Read one environment of the lock file; what is wrong goes to the reader."""
    fields = reader.mapping(data, where, "environment")
    wheels: list[Wheel] = []
    for file, value in reader.mapping(fields.get("wheels", {}), f"{where}.wheels").items():
        entry = reader.mapping(value, f"{where}.wheels.{file}", "wheel")
        sha256 = reader.text(entry, "sha256", f"{where}.wheels.{file}")
        if not WHEEL.fullmatch(file):
            reader.problem(f"{where}.wheels", f"{file!r} is not the file name of a wheel")
        elif sha256 and not re.fullmatch("[0-9a-f]{64}", sha256):
            reader.problem(f"{where}.wheels.{file}.sha256", "must be 64 hexadecimal digits")
        else:
            wheels.append(Wheel(file, sha256, reader.text(entry, "licence", f"{where}.wheels.{file}")))
    pythons = reader.listing(fields.get("pythons", []), f"{where}.pythons")
    if not pythons or not all(re.fullmatch(r"3\.\d+", python) for python in pythons):
        reader.problem(f"{where}.pythons", 'name versions of Python in quotes, such as ["3.12", "3.13"]')
    packages = reader.listing(fields.get("packages", []), f"{where}.packages")
    for package in packages:
        place = _place(package)[1]
        if not (place / "__init__.py").is_file() and not place.with_suffix(".py").is_file():
            reader.problem(f"{where}.packages", f"this tree has no package {package}")
    return Environment(
        name=name,
        module=reader.text(fields, "module", where),
        packages=packages,
        extra=reader.text(fields, "extra", where),
        pythons=pythons,
        wheels=tuple(wheels),
        own_versions=reader.flag(fields, "own_versions", where),
        leave_out=reader.listing(fields.get("leave_out", []), f"{where}.leave_out"),
    )


def _place(package: str) -> tuple[pathlib.Path, pathlib.Path]:
    """Return the folder from which a package is imported, and where it lies there; a module without .py."""
    top = ROOT / "collections" if package.startswith("ansible_collections.") else ROOT
    return top, top / package.replace(".", "/")


def _digest(path: pathlib.Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
