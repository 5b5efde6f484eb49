# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which GPU driver, release of gVisor and GPU go together: tested data, and what the program itself says.

gVisor passes the driver's calls through, one structure at a time, so it knows every version of the driver by
name that it works with. With any other one no sandbox with a GPU starts.
"""

from __future__ import annotations

import functools
import hashlib
import platform
import posixpath
import re
import subprocess
import tarfile
import tempfile
import typing as t
from collections.abc import Iterable, Mapping
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.artifacts_index import (
    ArtifactsIndexError,
    load_index,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import read_yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.values import Rejected

DATA_FILE = Path(__file__).absolute().with_name("matrix.yml")
ASK_SECONDS = 20
_DRIVER = re.compile(r"[0-9]{3}\.[0-9]{1,3}(\.[0-9]{2})?")


class Triple(t.NamedTuple):
    """What has to go together: versions as text, the GPU by its model."""

    driver: str
    gvisor: str
    model: str


Supported = Mapping[str, tuple[str, ...]]
"""Release of gVisor -> versions of the driver that it works with."""


@functools.lru_cache(maxsize=1)
def data() -> Mapping[str, t.Any]:
    """Return what matrix.yml says."""
    return t.cast("Mapping[str, t.Any]", read_yaml(DATA_FILE))


def known_releases() -> dict[str, tuple[str, ...]]:
    """Return what the data say of each release of gVisor."""
    return {name: tuple(map(str, drivers)) for name, drivers in data()["gvisor"]["releases"].items()}


def models() -> tuple[str, ...]:
    """Return the GPUs that gVisor is taken to work with."""
    return tuple(data()["gvisor"]["models"])


def tested_triples(entries: Iterable[Mapping[str, t.Any]]) -> frozenset[Triple]:
    """Return what has been seen working, here or by the site.

    Args:
        entries: the value of ``gvisor_gpu_tested``.
    """
    return frozenset(
        Triple(str(each["driver"]), str(each["gvisor"]), str(each["model"]))
        for each in [*data()["gvisor"]["tested"], *entries]
    )


def order(driver: str) -> tuple[int, ...]:
    """Return a driver's version as numbers, for comparison."""
    return tuple(int(part) for part in driver.split("."))


def is_driver(text: str) -> bool:
    """Tell whether a text is a version of the driver."""
    return _DRIVER.fullmatch(text) is not None


def read_answer(text: str) -> tuple[str, ...]:
    """Return the versions that ``runsc nvproxy list-supported-drivers`` printed; what is none is left out."""
    return tuple(line.strip() for line in text.splitlines() if _DRIVER.fullmatch(line.strip()))


@functools.lru_cache(maxsize=8)
def ask(program: Path) -> tuple[str, ...]:
    """Return the drivers that a runsc works with, as it says itself; empty when it cannot be run here."""
    try:
        done = subprocess.run(
            [str(program), "nvproxy", "list-supported-drivers"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ASK_SECONDS,
            check=True,
            env={},
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return read_answer(done.stdout)


def ask_mirror(index: str | Path, release: str, archive: bool = False) -> tuple[str, ...]:
    """Return what the runsc of the mirror says, whose digest has to be that of the index.

    Args:
        index: the mirror's ``index.json``, with the mirror beside it.
        release: of gVisor.
        archive: ask the runsc in the release's archive.

    Returns:
        The drivers; empty when the mirror is not on this machine or has another architecture.
    """
    if platform.machine() != "x86_64":
        return ()
    try:
        entry = load_index(index).artifact("gvisor" if archive else "runsc", release)
        program = Path(index).expanduser().parent / entry["path"].lstrip("/")
        with program.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found != entry["sha256"]:
            return ()
        return _ask_archive(program) if archive else ask(program)
    except (ArtifactsIndexError, OSError, EOFError, tarfile.TarError):
        return ()


@functools.lru_cache(maxsize=8)
def _ask_archive(path: Path) -> tuple[str, ...]:
    with tempfile.TemporaryDirectory(prefix="ironspan-runsc-") as folder, tarfile.open(path) as archive:
        # It lies at the top, and no member is read beyond it.
        members = (each for each in archive if posixpath.normpath(each.name) == "runsc" and each.isreg())
        member = next(members, None)
        if member is None:
            return ()
        member.name = "runsc"
        archive.extract(member, folder, filter="data")
        return ask(Path(folder, "runsc"))


def check(triple: Triple, supported: Supported, tested: frozenset[Triple]) -> None:
    """Accept a combination.

    Args:
        triple: what a host shall have.
        supported: what the releases of gVisor work with.
        tested: what has been seen working.

    Raises:
        Rejected: it does not work, or nobody knows; the remedy is the nearest combination that does.
    """
    if triple in tested:
        return
    if not _DRIVER.fullmatch(triple.driver):
        raise Rejected(f"{triple.driver!r} is no version of the driver", 'write for example "580.159.03"')
    if triple.gvisor not in supported:
        raise Rejected(
            f"nothing is known of the drivers of gVisor {triple.gvisor}",
            f"run `ironspan artifacts build runsc/{triple.gvisor}`, whose program is asked then, or write "
            f"one of {', '.join(sorted(supported))}",
        )
    if triple.driver not in supported[triple.gvisor]:
        raise Rejected(
            f"gVisor {triple.gvisor} does not know the driver {triple.driver}, "
            "so no sandbox with a GPU starts",
            nearest_good(triple, supported),
        )
    if triple.model not in models():
        near = nearest(triple.model, models())
        raise Rejected(
            f"nobody has said that gVisor works with the GPU {triple.model}",
            (f"write {near}, or " if near else "")
            + "try it, then add {driver, gvisor, model} to gvisor_gpu_tested",
        )


def nearest_good(triple: Triple, supported: Supported) -> str:
    """Return what to write instead: the nearest driver for this gVisor, and a gVisor for this driver."""
    remedies = []
    drivers = supported[triple.gvisor]
    if drivers:
        wanted = order(triple.driver)
        # The same branch first; of two that are as near the newer one.
        best = min(drivers, key=lambda each: (distance(order(each), wanted), tuple(-n for n in order(each))))
        remedies.append(f'the driver "{best}"')
    releases = [name for name, each in supported.items() if triple.driver in each]
    if releases:
        remedies.append(f'gvisor_version: "{max(releases)}"')
    return f"write {' or '.join(remedies)}" if remedies else "write a release of gVisor that supports GPUs"


def distance(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """Return how far two versions are from each other; every part has less than four digits."""
    first, second = (
        functools.reduce(lambda whole, part: whole * 1000 + part, (*version, 0, 0)[:3], 0)
        for version in (one, other)
    )
    return abs(first - second)
