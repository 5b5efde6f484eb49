# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""One case: a good site, perhaps a mistake in it, and what the site model says. The number is all of it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import sys
import time
import typing as t
from collections.abc import Iterator
from pathlib import Path
from random import Random

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.loader import load_site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Problem

from tests.unit.refuse import mistakes
from tests.unit.refuse.mistakes import IN_FILES, IN_SITE, Mistake
from tests.unit.refuse.sites import draw
from tests.unit.refuse.writing import PASSWORD, Written, write
from tests.unit.site_model.conftest import KEY

INI, NUMBERS_IN_INI = ("hosts", "inventory"), ('"5 "', '"0x10"')
"""Values of hosts in INI files are Python's literals to Ansible: these are numbers there, and no mistake."""
MOST_SECONDS = 10.0
"""CPU of one case."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What came of a case.

    Args:
        kind: class of the mistake, ``good`` for a site without one.
        what: the mistake in words.
        fault: what is wrong with the answer, "" when nothing is.
        said: the problems.
    """

    number: int
    kind: str
    what: str
    fault: str
    said: tuple[str, ...] = ()
    seconds: float = 0.0


class Watch:
    """Sees what this process does meanwhile: files written, programs started, connections."""

    _events = (
        "socket.connect",
        "socket.getaddrinfo",
        "socket.bind",
        "subprocess.Popen",
        "os.system",
        "os.exec",
        "os.posix_spawn",
        "os.mkdir",
        "os.rename",
        "os.remove",
        "os.rmdir",
        "os.symlink",
        "os.chmod",
    )

    def __init__(self) -> None:
        self._on = False
        self.seen: list[str] = []
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[t.Any, ...]) -> None:
        if not self._on:
            return
        if "ldconfig" in str(arguments):  # Python's own way to find a library
            return
        if event == "open":
            path, mode, flags = arguments
            if isinstance(path, int):  # opened before, under its name
                return
            writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if writes and "__pycache__" not in str(path) and str(path) != os.devnull:
                self.seen.append(f"opened {path} to write ({mode})")
        elif event in self._events and "__pycache__" not in str(arguments):
            self.seen.append(f"{event} {str(arguments)[:120]}")

    @contextlib.contextmanager
    def watching(self) -> Iterator[list[str]]:
        """Return what was seen in a block."""
        self.seen = []
        self._on = True
        try:
            yield self.seen
        finally:
            self._on = False


def run(number: int, seed: str, folder: Path, watch: Watch, is_good: bool = False) -> Verdict:
    """Run one case.

    Args:
        number: which; the same number and seed are the same case.
        seed: of all cases.
        folder: an empty one, in which the site is made and removed.
        watch: sees what is done meanwhile.
        is_good: without a mistake.
    """
    rng = Random(f"{seed}:{'good' if is_good else 'wrong'}:{number}")
    mistake, written = (None, write(draw(rng), rng)) if is_good else _mistaken(rng)
    here = folder / f"{number}{'g' if is_good else 'w'}"
    try:
        kind, what = (mistake.kind, mistake.what) if mistake else ("good", "")
        sources = written.to(here)
        began = time.process_time()
        with watch.watching() as seen:
            try:
                site, problems = load_site(sources, loader=_loader(), environment={"IRONSPAN_PKI_KEY": KEY})
            except Exception as error:  # every one is a finding
                return Verdict(
                    number,
                    mistake.kind if mistake else "good",
                    mistake.what if mistake else "",
                    f"raises {error!r}",
                )
        seconds = time.process_time() - began
        fault = _fault(mistake, written, here, problems, site is None)
        if seconds > MOST_SECONDS:
            fault = fault or f"took {seconds:.0f} s of CPU"
        if seen and "dynamic" not in written.files:
            fault = fault or seen[0]
        said = tuple(str(problem) for problem in problems[:5])
        return Verdict(number, kind, what, fault, said, seconds)
    finally:
        shutil.rmtree(here, ignore_errors=True)


def _loader() -> t.Any:
    from ansible.parsing.dataloader import DataLoader
    from ansible.parsing.vault import VaultSecret

    loader = DataLoader()
    loader.set_vault_secrets([("default", VaultSecret(PASSWORD.encode()))])
    return loader


def _mistaken(rng: Random) -> tuple[Mistake, Written]:
    """Return a site with a mistake; what cannot be made in a site is drawn again."""
    both = [*IN_SITE, *((weight, make) for weight, make in IN_FILES)]
    while True:
        site = draw(rng)
        (make,) = rng.choices([make for _weight, make in both], [weight for weight, _make in both])
        if any(make is each for _weight, each in IN_SITE):
            mistake = t.cast(mistakes.InSite, make)(site, rng)
            written = write(site, rng)
            if mistake is None or (mistake.keys and not all_there(mistake, written)):
                continue
            if written.hosts_file in INI and mistake.what.endswith(NUMBERS_IN_INI):
                continue
            return mistake, written
        written = write(site, rng)
        mistake = t.cast(mistakes.InFiles, make)(site, written, rng)
        if mistake is not None:
            return mistake, written


def all_there(mistake: Mistake, written: Written) -> bool:
    """Tell whether what is wrong was written at all."""
    return any(key in written.where for key in mistake.keys)


def _fault(
    mistake: Mistake | None, written: Written, folder: Path, problems: list[Problem], refused: bool
) -> str:
    if mistake is None:
        return "a good site is refused" if refused else ""
    if not refused or not problems:
        return "is accepted"
    wanted = {written.where[key] for key in mistake.keys if key in written.where} | set(mistake.places)
    if any(file in written.encrypted for file, _line in wanted):
        return ""  # lines are those of what is encrypted
    found = {(os.path.relpath(problem.file, folder), problem.line) for problem in problems}
    if found & wanted or ("*", 0) in wanted:
        return ""
    return f"not at its line: wanted {sorted(wanted)[:4]}, named {sorted(found)[:4]}"
