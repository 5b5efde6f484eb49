# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Wheels: what their names say, whether a Python can use them, and unpacking them into an environment.

A wheel is a zip archive whose name says which Pythons it is for. It is installed by unpacking it and writing
the programs that its entry points name (https://packaging.python.org, "Binary distribution format").
"""

from __future__ import annotations

import configparser
import os
import re
import typing as t
import zipfile
import zlib

from ansible_collections.ironspan.hybrid.plugins.module_utils._system import files, paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import ResourceError

_NAME = re.compile(
    r"(?P<project>[A-Za-z0-9][A-Za-z0-9._]*)-(?P<version>[A-Za-z0-9_.!+]+)(-(?P<build>\d\w*))?"
    r"-(?P<python>[\w.]+)-(?P<abi>[\w.]+)-(?P<platform>[\w.]+)\.whl\Z",
    re.ASCII,
)
_GLIBC = re.compile(r"manylinux_(\d+)_(\d+)_(\w+)\Z")
_OLD_GLIBC = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}
_ENTRY = re.compile(r"\s*([\w.]+)\s*:\s*([\w.]+)\s*(\[.*\])?\s*\Z")
_PROGRAM = """#!{python}
import sys

from {module} import {first}

if __name__ == "__main__":
    sys.exit({attribute}())
"""
UNREADABLE = (zipfile.BadZipFile, zlib.error, KeyError, NotImplementedError, RuntimeError, EOFError)
"""What reading raises where the bytes are no wheel, or a damaged one."""


class Python(t.NamedTuple):
    """What decides which wheels an interpreter can use."""

    path: str
    """Without links: an update to another version has another path."""
    version: t.Tuple[int, int]
    machine: str
    glibc: t.Tuple[int, int]
    """(0, 0) where the C library is another one."""


def parse(name: str) -> t.Optional[t.Dict[str, str]]:
    """Return what a wheel's name says, the project in lower case with dashes; None if it is no such name."""
    match = _NAME.match(name)
    if match is None:
        return None
    found = {key: match.group(key) for key in ("version", "python", "abi", "platform")}
    return {"project": re.sub(r"[-_.]+", "-", match.group("project")).lower(), **found}


def fits(name: str, python: Python) -> bool:
    """Tell whether an interpreter can use a wheel."""
    found = parse(name)
    if found is None:
        return False
    abis, platforms = found["abi"].split("."), found["platform"].split(".")
    pythons = found["python"].split(".")
    return any(_fits_python(tag, abis, python) for tag in pythons) and any(
        _fits_platform(tag, python) for tag in platforms
    )


def _fits_python(tag: str, abis: t.Sequence[str], python: Python) -> bool:
    major, minor = python.version
    match = re.match(r"(cp|py)(\d)(\d*)\Z", tag)
    if match is None or int(match.group(2)) != major:
        return False
    least = int(match.group(3) or 0)
    if match.group(1) == "py" or "none" in abis:
        # For this version or a later one; with "cp" for this very one.
        return "none" in abis and (least <= minor if match.group(1) == "py" else least == minor)
    return (least == minor and f"cp{major}{minor}" in abis) or ("abi3" in abis and least <= minor)


def _fits_platform(tag: str, python: Python) -> bool:
    if tag in ("any", f"linux_{python.machine}"):
        return True
    match = _GLIBC.match(tag)
    if match is not None:
        wanted, machine = (int(match.group(1)), int(match.group(2))), match.group(3)
    else:
        old, _, machine = tag.partition("_")
        wanted = _OLD_GLIBC.get(old, (99, 0))
    return machine == python.machine and wanted <= python.glibc


def open_wheel(stream: t.BinaryIO, name: str) -> zipfile.ZipFile:
    """Return an open wheel.

    Raises:
        ResourceError: it is no zip archive.
    """
    try:
        return zipfile.ZipFile(stream)
    except UNREADABLE as error:
        raise not_a_wheel(name, error) from error


def not_a_wheel(name: str, error: object) -> ResourceError:
    """Return the error for a wheel that cannot be unpacked."""
    return ResourceError(
        f"{name} cannot be unpacked: {error}", "Lock a wheel as the package index serves it."
    )


def size_of(wheel: zipfile.ZipFile) -> int:
    """Return how many bytes its files have."""
    return sum(info.file_size for info in wheel.infolist())


def unpack(wheel: zipfile.ZipFile, name: str, tree: str, called: str, python: Python) -> None:
    """Unpack a wheel into an environment and write its programs. Nothing is synced.

    Args:
        wheel: open for reading.
        name: its file name, for messages.
        tree: the environment's folder on this machine.
        called: the folder as its programs call it.
        python: the environment's interpreter.

    Raises:
        ResourceError: an entry would leave the environment, or the archive is damaged.
    """
    library = f"lib/python{python.version[0]}.{python.version[1]}/site-packages"
    interpreter = f"{called}/bin/python"
    made: t.Set[str] = set()
    try:
        for info in wheel.infolist():
            if info.is_dir():
                continue
            path, is_program = _place(info.filename, name, library)
            data = wheel.read(info)
            if is_program and data.startswith(b"#!python"):
                data = b"#!" + interpreter.encode() + data[data.find(b"\n") :] if b"\n" in data else b""
            executable = is_program or bool(info.external_attr >> 16 & 0o111)
            _write(f"{tree}/{path}", data, 0o755 if executable else 0o644, made)
            if path.endswith(".dist-info/entry_points.txt"):
                for program, module, attribute in _programs(data, name):
                    text = _PROGRAM.format(
                        python=interpreter,
                        module=module,
                        first=attribute.split(".")[0],
                        attribute=attribute,
                    )
                    _write(f"{tree}/bin/{program}", text.encode(), 0o755, made)
    except UNREADABLE as error:
        raise not_a_wheel(name, error) from error


def _place(entry: str, name: str, library: str) -> t.Tuple[str, bool]:
    """Return where an entry belongs below the environment, and whether it is a program."""
    parts = entry.split("/")
    if (
        entry.startswith("/")
        or "\\" in entry
        or "\0" in entry
        or ".." in parts
        or "" in parts
        or "." in parts
    ):
        raise not_a_wheel(name, f"its entry {entry!r} would leave the environment")
    if parts[0].endswith(".data") and len(parts) > 2:
        where = {"purelib": library, "platlib": library, "scripts": "bin", "data": "", "headers": "include"}
        if parts[1] not in where:
            raise not_a_wheel(name, f"its entry {entry!r} is of no kind that wheels have")
        return os.path.join(where[parts[1]], *parts[2:]), parts[1] == "scripts"
    return f"{library}/{entry}", False


def _programs(data: bytes, name: str) -> t.Iterator[t.Tuple[str, str, str]]:
    """Yield name, module and attribute of each program that a wheel's entry points name."""
    read = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    read.optionxform = str  # type: ignore[method-assign,assignment]
    try:
        read.read_string(data.decode("utf-8"))
    except (configparser.Error, UnicodeDecodeError) as error:
        raise not_a_wheel(name, f"its entry points cannot be read: {error}") from error
    for section in ("console_scripts", "gui_scripts"):
        for program, target in read.items(section) if read.has_section(section) else ():
            match = _ENTRY.match(target)
            if match is None or not re.fullmatch(r"[\w.-]+", program) or program in (".", ".."):
                raise not_a_wheel(name, f"its entry point {program!r} is {target!r}, not MODULE:FUNCTION")
            yield program, match.group(1), match.group(2)


def _write(path: str, data: bytes, mode: int, made: t.Set[str]) -> None:
    folder = os.path.dirname(path)
    if folder not in made:
        paths.make_folders(folder)
        made.add(folder)
    # Two wheels may have a file of one name, such as tests/__init__.py: the later one counts, as with pip.
    files.remove_if_there(path)
    descriptor = paths.create(path)
    try:
        files.write_all(descriptor, data)
        paths.give(descriptor, mode)
    finally:
        os.close(descriptor)
