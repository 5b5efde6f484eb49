# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The lock file: what the mirror holds, which version, from where, with which digest, built how."""

from __future__ import annotations

import collections.abc
import dataclasses
import pathlib
import platform
import re
import typing as t
import urllib.parse

from ironspan.artifacts.environments import MACHINES, Environment
from ironspan.artifacts.system.declared import System
from ironspan.cli.outcome import CommandError, Exit

SCHEMA = 1
DIGEST = re.compile(r"^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$")
IMAGE_REF = re.compile(
    r"^(?P<registry>[a-z0-9.-]+(:[0-9]+)?)/(?P<repository>[a-z0-9._/-]+):(?P<tag>[\w][\w.-]*)$"
)
PACKS = ("file", "tar.gz", "chart")


@dataclasses.dataclass(frozen=True)
class CProgram:
    """A small C program that lies in a Go module's source."""

    module: str
    source: str
    flags: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Component:
    """What the Go source compiles: one Go module of its own under ``gomods/<name>``."""

    name: str
    version: str
    licence: str
    modules: dict[str, str]
    programs: dict[str, str]
    c_programs: dict[str, CProgram]
    replace: dict[str, str]
    staging: str
    cgo: bool
    libraries: tuple[str, ...]
    tags: tuple[str, ...]
    ldflags: tuple[str, ...]
    tests: dict[str, str] = dataclasses.field(default_factory=dict)
    """Name of a program -> Go package whose tests it is (``go test -c``)."""

    def built_from(self) -> str:
        """Return modules and versions in one line, for the index and for lists."""
        return ", ".join(f"{module}@{version}" for module, version in sorted(self.modules.items()))


@dataclasses.dataclass(frozen=True)
class Base:
    """A lowest image layer made from Debian packages."""

    name: str
    suite: str
    packages: tuple[str, ...]
    licence: str
    links: dict[str, str]
    applets: tuple[str, ...] | t.Literal["all"]
    files: dict[str, str] = dataclasses.field(default_factory=dict)
    """Path -> content of files of our own; those that begin with ``#!`` are programs."""


@dataclasses.dataclass(frozen=True)
class Chart:
    """Manifests that Helm renders from a chart in a Go module, with values of our own.

    Args:
        program: COMPONENT/PROGRAM of Helm.
        folder: COMPONENT/PATH of the chart in its module.
        values: name of the file with the values, in ``ironspan/artifacts/charts``.
        namespace: where its objects live.
        kube_version: the Kubernetes that the chart is told it is for.
        sha256: what comes out, reviewed; anything else is refused. Empty: nobody has reviewed it yet.
    """

    program: str
    folder: str
    values: str
    namespace: str
    kube_version: str
    sha256: str


# Compared by identity: an entry of a lock file is a key in tables of work.
@dataclasses.dataclass(frozen=True, eq=False)
class File:
    """A file of the mirror at the URL path where upstream publishes it."""

    name: str
    version: str
    licence: str
    url: str
    path: str
    digests: dict[str, str | None]
    only_without_capability: str
    pack: str
    members: dict[str, str]
    set_name: str = ""
    """Made only when this set is asked for; empty: always."""
    environment: str = ""
    """The program in Python that it is; empty for everything else."""
    chart: Chart | None = None
    """The chart that it is rendered from; None for everything else."""
    system: str = ""
    """SYSTEM/FILE: the file of a system that it is; empty for everything else."""
    sizes: dict[str, int] = dataclasses.field(default_factory=dict)
    """Bytes of the published file by architecture, where they are known: no more is downloaded."""

    @property
    def key(self) -> str:
        """Return NAME/VERSION, as the lock file and the command line write it."""
        return f"{self.name}/{self.version}"

    def upstream_url(self, arch: str) -> str:
        """Return the address of the published file, empty when there is none."""
        return expand(self.url, arch)

    def mirror_path(self, arch: str) -> str:
        """Return the path below the mirror, beginning with a slash: host and path of the upstream URL."""
        if self.path:
            return expand(self.path, arch)
        parts = urllib.parse.urlsplit(self.upstream_url(arch))
        return f"/{parts.netloc}{parts.path}"

    def components(self) -> set[str]:
        """Return the names of the components that the Go source needs."""
        sources = [*self.members.values(), *((self.chart.program, self.chart.folder) if self.chart else ())]
        return {source.partition("/")[0] for source in sources}


# Compared by identity: an entry of a lock file is a key in tables of work.
@dataclasses.dataclass(frozen=True, eq=False)
class Image:
    """A container image, by the reference that pods use."""

    ref: str
    licence: str
    digests: dict[str, str | None]
    base: str
    programs: dict[str, str]
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    user: str
    buildable: bool
    set_name: str = ""
    """Made only when this set is asked for; empty: always."""
    sources: dict[str, str] = dataclasses.field(default_factory=dict)
    """Path in the image -> COMPONENT/PATH of a file or folder in the component's Go module."""

    @property
    def key(self) -> str:
        """Return the reference."""
        return self.ref

    @property
    def registry(self) -> str:
        """Return the registry's host name."""
        return self.ref.partition("/")[0]

    @property
    def repository(self) -> str:
        """Return the repository without registry and tag."""
        return self.ref.partition("/")[2].rpartition(":")[0]

    @property
    def tag(self) -> str:
        """Return the tag."""
        return self.ref.rpartition(":")[2]

    @property
    def mirror_folder(self) -> str:
        """Return the folder below the mirror that has ``manifests`` and ``blobs``."""
        return f"/v2/{self.registry}/{self.repository}"

    def components(self) -> set[str]:
        """Return the names of the components that the Go source needs."""
        return {source.partition("/")[0] for source in (*self.programs.values(), *self.sources.values())}


@dataclasses.dataclass(frozen=True)
class Lock:
    """A whole lock file, checked."""

    path: pathlib.Path
    components: dict[str, Component]
    bases: dict[str, Base]
    files: dict[str, File]
    images: dict[str, Image]
    environments: dict[str, Environment] = dataclasses.field(default_factory=dict)
    systems: dict[str, System] = dataclasses.field(default_factory=dict)

    def sets(self) -> list[str]:
        """Return the names of the sets that are made only when they are asked for."""
        items: list[File | Image] = [*self.files.values(), *self.images.values()]
        return sorted({item.set_name for item in items} - {""})

    def needed(self, sets: collections.abc.Collection[str] = ()) -> list[File | Image]:
        """Return what a site needs: the entries of no set, and those of the sets named.

        Raises:
            CommandError: there is no such set (exit 2).
        """
        unknown = sorted(set(sets) - set(self.sets()))
        if unknown:
            raise CommandError(
                f"{self.path} has no set {', '.join(unknown)}",
                f"It has: {', '.join(self.sets()) or 'none'}",
                Exit.BAD_INPUT,
            )
        return [item for item in self.select(None) if not item.set_name or item.set_name in sets]

    def select(self, names: collections.abc.Collection[str] | None) -> list[File | Image]:
        """Return the entries asked for, files first.

        Args:
            names: NAME/VERSION, NAME (all its versions) or an image reference (its tag may be left out);
                None for all.

        Raises:
            CommandError: a name is not in the lock file (exit 2); the message lists what is.
        """
        everything: list[File | Image] = [*self.files.values(), *self.images.values()]
        if names is None:
            return everything
        chosen: dict[str, File | Image] = {}
        unknown: list[str] = []
        for name in names:
            found = [item for item in everything if name in _names(item)]
            chosen.update({item.key: item for item in found})
            if not found:
                unknown.append(name)
        if unknown:
            known = ", ".join(item.key for item in everything)
            raise CommandError(
                f"not in {self.path}: {', '.join(unknown)}", f"The lock file has: {known}", Exit.BAD_INPUT
            )
        return [item for item in everything if item.key in chosen]


def _names(item: File | Image) -> tuple[str, ...]:
    if isinstance(item, File):
        return (item.key, item.name)
    return (item.ref, item.ref.rpartition(":")[0], item.repository.rpartition("/")[2])


def expand(text: str, arch: str) -> str:
    """Replace ``{arch}`` and ``{machine}`` in a URL or a member's name."""
    return text.replace("{arch}", arch).replace("{machine}", MACHINES[arch])


def native_arch() -> str:
    """Return this machine's architecture as the lock file calls it.

    Raises:
        CommandError: the machine is neither amd64 nor arm64.
    """
    machine = platform.machine()
    for arch, name in MACHINES.items():
        if machine == name:
            return arch
    raise CommandError(f"this machine is a {machine}; the mirror has amd64 and arm64", "", Exit.BAD_INPUT)
