# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which programs a build needs on this machine, and what to install when they are missing."""

from __future__ import annotations

import collections.abc
import os
import pathlib
import re
import shutil
import subprocess

from ironspan.artifacts.lock import Component
from ironspan.cli.outcome import CommandError, Exit

GOMODS = pathlib.Path(__file__).resolve().parent / "gomods"
"""go.mod and go.sum of each component."""
DEBIAN_KEYRING = pathlib.Path("/usr/share/keyrings/debian-archive-keyring.gpg")
TOOLCHAIN_SWITCH = (1, 21)
"""Since this release Go fetches the newer toolchain that a go.mod asks for (go.dev/doc/toolchain)."""
OTHER_BUILDS = frozenset(
    {"GODEBUG", "GOEXPERIMENT", "GOFIPS140", "CGO_CPPFLAGS", "CGO_CXXFLAGS", "CGO_LDFLAGS"}
)
"""Variables that other builds set and that would make other programs of the same recipe."""
COMPILE_MEMORY = 3 << 30
"""Bytes that one component's compilation may take; Kubernetes was measured at 2 GiB."""


def go_environment(component: Component | None, arch: str) -> dict[str, str]:
    """Return the environment of every ``go`` command, the same on all machines so that builds repeat.

    Args:
        component: whose cgo setting applies; None for commands that compile nothing.
        arch: amd64 or arm64.
    """
    return {
        **{name: value for name, value in os.environ.items() if name not in OTHER_BUILDS},
        # Set to what they are by default: a user's own `go env -w` counts where a variable is not set.
        "GO111MODULE": "on",
        "GOAMD64": "v1",
        "GOARM64": "v8.0",
        "CGO_CFLAGS": "-O2 -g",
        "CGO_ENABLED": "1" if component is not None and component.cgo else "0",
        # readonly: a build that wants other modules than go.mod and go.sum name fails.
        "GOFLAGS": "-buildvcs=false -trimpath -mod=readonly",
        "GOWORK": "off",
        "GOOS": "linux",
        "GOARCH": arch,
        "LC_ALL": "C",
    }


def go_required(
    components: collections.abc.Iterable[Component], folder: pathlib.Path = GOMODS
) -> tuple[int, ...]:
    """Return the highest Go release that the components' go.mod files ask for."""
    highest: tuple[int, ...] = (1, 26)
    for component in components:
        text = (folder / component.name / "go.mod").read_text(encoding="utf-8")
        found = re.search(r"^go ([0-9.]+)", text, re.MULTILINE)
        if found:
            highest = max(highest, _numbers(found.group(1)))
    return highest


def go_version() -> str:
    """Return what ``go version`` says, for example go1.26.8; empty when there is no Go."""
    if shutil.which("go") is None:
        return ""
    answer = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=False, cwd="/")
    return answer.stdout.strip()


def missing(components: collections.abc.Collection[Component], debian_bases: bool) -> list[str]:
    """Return what this machine lacks to build from Go modules, each with what to do; empty when all is there.

    Args:
        components: what is to be compiled.
        debian_bases: whether image layers are to be made from Debian packages.
    """
    problems: list[str] = []
    packages: set[str] = set()
    if components:
        problems += _go_problems(components)
        # A library's static archive and header come with its -dev package; looking needs no compiler.
        libraries = {library for component in components for library in component.libraries}
        if any(component.cgo or component.c_programs for component in components):
            if shutil.which(os.environ.get("CC", "gcc")) is None:
                packages |= {"gcc"}
            if not _has_library("libc"):
                packages |= {"libc6-dev"}
        for library in libraries:
            if not _has_library(library):
                packages |= {f"{library}-dev"}
            if shutil.which("pkg-config") is None:
                packages |= {"pkg-config"}
    if debian_bases:
        if shutil.which("mmdebstrap") is None:
            packages |= {"mmdebstrap"}
        if not DEBIAN_KEYRING.exists():
            packages |= {"debian-archive-keyring"}
    if packages:
        names = " ".join(sorted(packages))
        problems.append(f"Debian packages are missing: {names}. Install them: apt-get install -y {names}")
    return problems


def require(components: collections.abc.Collection[Component], debian_bases: bool) -> None:
    """Refuse to begin a build that could not end.

    Raises:
        CommandError: something is missing; the message has all of it (exit 2).
    """
    problems = missing(components, debian_bases)
    if problems:
        raise CommandError(
            "this machine cannot build the artefacts from Go modules:\n"
            + "\n".join(f"  {one}" for one in problems),
            "Or, with access to the official downloads, use `ironspan artifacts fetch`.",
            Exit.BAD_INPUT,
        )


def parallel_compiles() -> int:
    """Return how many components to compile at once: few, as Go itself uses all cores."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min((os.cpu_count() or 1) // 2, memory // COMPILE_MEMORY, 4))


def _go_problems(components: collections.abc.Collection[Component]) -> list[str]:
    required = go_required(components)
    wanted = ".".join(str(number) for number in required)
    remedy = f"install Go {wanted} or newer (https://go.dev/dl/) and put its bin folder on PATH"
    version = go_version()
    if not version:
        return [f"there is no Go on PATH; {remedy}"]
    have = _numbers(version)
    if have >= required:
        return []
    setting = subprocess.run(
        ["go", "env", "GOTOOLCHAIN"], capture_output=True, text=True, check=False, cwd="/"
    )
    if have >= TOOLCHAIN_SWITCH and setting.stdout.strip() != "local":
        return []
    return [f"Go on PATH is {version}, too old; {remedy}"]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version.partition("-")[0])[:3])


def _has_library(name: str) -> bool:
    """Look for a static library where Debian puts it, and where other distributions do."""
    return any(
        any(pathlib.Path("/usr").glob(f"{folder}/{name}.a"))
        for folder in ("lib/*-linux-gnu*", "lib64", "lib")
    )
