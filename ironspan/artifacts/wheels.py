# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Packs a program in Python with its wheels into one file, and pins the wheels; pip fetches them."""

from __future__ import annotations

import collections.abc
import email.parser
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file

from ironspan.artifacts import cache
from ironspan.artifacts.environments import COMMON, MACHINES, Environment, Wheel
from ironspan.artifacts.lock import Lock
from ironspan.cli.outcome import CommandError, Exit

SHEBANG = b"#!/usr/bin/python3 -IS\n"
"""Isolated: neither the environment nor packages of the host change what the program imports."""
OLDEST_GLIBC = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
"""glibc 2.28 is of 2018; Debian 13 has 2.41, Ubuntu 24.04 has 2.39."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip can hold."""


def fetch(
    environment: Environment, arch: str, place: cache.Cache, scratch: pathlib.Path
) -> list[pathlib.Path]:
    """Return the wheels of a program, after pip has brought those that are not kept yet.

    Args:
        environment: the program.
        arch: amd64 or arm64.
        place: the cache.
        scratch: folder for half-done work.

    Raises:
        CommandError: pip failed, or brought something else than what is pinned.
    """
    kept = place.root / "wheels"
    wheels = environment.wheels_for(arch)
    missing = [wheel for wheel in wheels if not cache.has_digest(kept / wheel.file, f"sha256:{wheel.sha256}")]
    for number, python in enumerate(environment.pythons):
        folders = {f"cp{python.replace('.', '')}"} | ({COMMON} if number == 0 else set())
        asked = [wheel for wheel in missing if wheel.folder in folders]
        if asked:
            lines = [f"{wheel.requirement} --hash=sha256:{wheel.sha256}" for wheel in asked]
            download(lines, arch, python, scratch / "wheels", ["--require-hashes"])
    for wheel in missing:
        brought = scratch / "wheels" / wheel.file
        if not cache.has_digest(brought, f"sha256:{wheel.sha256}"):
            raise CommandError(f"pip did not bring {wheel.file}", f"Pin again: {_pin_command(environment)}")
        cache.publish(brought, kept / wheel.file)
    return [kept / wheel.file for wheel in wheels]


def download(
    requirements: collections.abc.Sequence[str],
    arch: str,
    python: str,
    folder: pathlib.Path,
    options: collections.abc.Sequence[str] = (),
) -> None:
    """Let pip download wheels for hosts with this Python, whatever runs here."""
    folder.mkdir(parents=True, exist_ok=True)
    listing = folder / "requirements.txt"
    listing.write_text("\n".join(requirements) + "\n", encoding="utf-8")
    abi = f"cp{python.replace('.', '')}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps", *options]
    command += ["--disable-pip-version-check", "--only-binary", ":all:", "--implementation", "cp"]
    command += ["--python-version", python, "--abi", abi, "--abi", "abi3", "--abi", "none"]
    for glibc in OLDEST_GLIBC:
        command += ["--platform", f"{glibc}_{MACHINES[arch]}"]
    answer = subprocess.run(
        [*command, "--dest", str(folder), "--requirement", str(listing)],
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        tail = "\n".join(f"  {line}" for line in answer.stderr.splitlines()[-6:])
        raise CommandError(
            f"pip could not download Python packages:\n{tail}",
            "Give pip an index that it reaches (pip config set global.index-url URL), then run it again.",
        )


def pack(
    environment: Environment, wheels: collections.abc.Sequence[pathlib.Path], target: pathlib.Path
) -> None:
    """Write the program: an executable zip that is the same, byte for byte, for the same content.

    Args:
        environment: the program.
        wheels: its wheels for one architecture.
        target: the file to write.

    Raises:
        CommandError: two wheels bring different files of one name, or need an installation.
    """
    members: dict[str, bytes] = {}
    for path in wheels:
        folder = Wheel(path.name, "", "").folder
        with zipfile.ZipFile(path) as source:
            for name in filter(environment.needs, source.namelist()):
                if name.endswith(("/", ".dist-info/RECORD")):
                    continue
                if ".data/" in name or name.endswith(".pth"):
                    raise CommandError(f"{path.name} has {name}, which unpacking alone does not install")
                member, content = f"{folder}/{name}", source.read(name)
                if members.setdefault(member, content) != content:
                    raise CommandError(f"{path.name} has another {name} than another wheel")
    members |= {f"code/{name}": path.read_bytes() for name, path in environment.code().items()}
    identity = hashlib.sha256()
    for name, content in sorted(members.items()):
        identity.update(f"{name} {hashlib.sha256(content).hexdigest()}\n".encode())
    about = {
        "identity": identity.hexdigest()[:16],
        "module": environment.module,
        "pythons": environment.pythons,
    }
    members["about.json"] = json.dumps(about).encode()
    members["__main__.py"] = pathlib.Path(__file__).with_name("launcher.py").read_bytes()
    with target.open("wb") as stream:
        stream.write(SHEBANG)
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in sorted(members.items()):
                info = zipfile.ZipInfo(name, _EPOCH)
                info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
                info.create_system = 3  # Unix, wherever it is made
                archive.writestr(info, content)
    target.chmod(0o755)


def pin(environment: Environment, lock: Lock) -> bool:
    """Resolve a program's wheels again and write them into the lock file.

    Versions are those of requirements.lock, and every wheel must be one of those that it names by digest. A
    program with versions of its own gets the newest that suit what it wants.

    Args:
        environment: the program.
        lock: the lock file; it is written.

    Returns:
        Whether the lock file changed.

    Raises:
        CommandError: requirements.lock does not agree, or pip or uv failed.
    """
    folder = lock.path.parent
    pinned = (folder / "requirements.lock").read_text(encoding="utf-8")
    described = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = described["project"]["optional-dependencies"][environment.extra]
    found: dict[str, Wheel] = {}
    with tempfile.TemporaryDirectory(prefix="ironspan-pin-") as name:
        for arch in MACHINES:
            constraints = None if environment.own_versions else folder / "requirements.lock"
            for python in environment.pythons:
                requirements = resolved(wanted, arch, python, constraints)
                download(requirements, arch, python, pathlib.Path(name))
        for path in sorted(pathlib.Path(name).glob("*.whl")):
            sha256 = cache.digest_of(path).removeprefix("sha256:")
            if not environment.own_versions and f"sha256:{sha256}" not in pinned:
                raise CommandError(f"{path.name} is not in requirements.lock", "Run: make lock")
            found[path.name] = Wheel(path.name, sha256, licence_of(path))
    text = lock.path.read_text(encoding="utf-8")
    changed = set_wheels(text, environment.name, found)
    if changed != text:
        write_file(lock.path, changed.encode())
    return changed != text


def licence_of(wheel: pathlib.Path) -> str:
    """Return the licence that a wheel's metadata state: an SPDX expression, or what stands for one."""
    with zipfile.ZipFile(wheel) as source:
        name = next(name for name in source.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.parser.Parser().parsestr(source.read(name).decode("utf-8"))
    stated = metadata["License-Expression"] or metadata["License"] or ""
    classifiers = [str(value) for value in metadata.get_all("Classifier", [])]
    classified = [value.rpartition(" :: ")[2] for value in classifiers if value.startswith("License ::")]
    return stated if stated and "\n" not in stated else (classified or ["unknown"])[0]


def set_wheels(text: str, name: str, wheels: collections.abc.Mapping[str, Wheel]) -> str:
    """Return the lock file's text with the wheels of one environment replaced; the rest stays as it is.

    Raises:
        CommandError: there is no such environment, or it has no mapping ``wheels`` (write ``wheels: {}``).
    """
    node: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    for step in ("environments", name, "wheels"):
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        node = next((value for key, value in pairs if key.value == step), None)
    if not isinstance(node, yaml.MappingNode):
        raise CommandError(
            f"{name} has no wheels to replace", "Write `wheels: {}` there first.", Exit.BAD_INPUT
        )
    # The end of the last value: that of a block is where the next token begins, comments between included.
    last: yaml.Node = node
    while isinstance(last, yaml.MappingNode) and last.value:
        last = last.value[-1][1]
    block = "".join(_entry(wheel) for _, wheel in sorted(wheels.items()))
    return text[: node.start_mark.index].rstrip() + block + text[last.end_mark.index :]


def _entry(wheel: Wheel) -> str:
    lines = (f"{wheel.file}:", f"  sha256: {wheel.sha256}", f"  licence: {json.dumps(wheel.licence)}")
    return "".join(f"\n      {line}" for line in lines)


def resolved(
    wanted: collections.abc.Sequence[str], arch: str, python: str, constraints: pathlib.Path | None
) -> list[str]:
    """Return what the packages wanted need, at the versions of a lock file if there is one: NAME==VERSION."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate"]
    command += ["--python-version", python, "--python-platform", f"{MACHINES[arch]}-manylinux_2_28"]
    command += ["--constraint", str(constraints), "-"] if constraints else ["-"]
    answer = subprocess.run(command, input="\n".join(wanted), capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise CommandError(
            f"uv could not resolve {' '.join(wanted)}:\n{answer.stderr.strip()}", "Run: make lock"
        )
    return re.findall(r"^[\w.-]+==\S+", answer.stdout, re.MULTILINE)


def _pin_command(environment: Environment) -> str:
    return f"ironspan artifacts pin --wheels {environment.name}"
