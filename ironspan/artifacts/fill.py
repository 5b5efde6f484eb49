# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Fills the mirror: decides what is to be done, does it in parallel, records each item when it is whole."""

from __future__ import annotations

import collections.abc
import concurrent.futures
import dataclasses
import pathlib
import typing as t
import urllib.parse

from ironspan.artifacts import cache, download, index, make, recipes, registry, toolchain
from ironspan.artifacts.lock import File, Image, Lock, native_arch
from ironspan.artifacts.system import build as system
from ironspan.cli.outcome import CommandError, Exit

SourceChoice = t.Literal["auto", "upstream", "go"]
Progress = collections.abc.Callable[[str, str, str], None]
"""(what, state, detail); state is start, done, skip or fail."""
WORKERS = 8
"""Items in work at once. Most of them wait for the compiler or the network, so more than there are cores."""
AWAKE_S = 1.0
"""How long the main thread waits at most before it looks whether somebody interrupted it."""
CAPABILITIES = {"CAP_SYS_RESOURCE": 24}
"""Bit numbers, as in linux/capability.h."""


@dataclasses.dataclass(frozen=True)
class Result:
    """How one item ended: done (made or downloaded now), skip (was right already) or fail."""

    key: str
    state: str
    detail: str


def upstream_hosts(items: collections.abc.Iterable[File | Image]) -> set[str]:
    """Return the host names that the source ``upstream`` talks to for these items."""
    hosts: set[str] = set()
    for item in items:
        if isinstance(item, Image):
            hosts.add(registry.api_host(item.registry))
        elif item.url:
            hosts.add(urllib.parse.urlsplit(item.url).netloc)
    return hosts


def lacks_capability(name: str, status: pathlib.Path = pathlib.Path("/proc/self/status")) -> bool:
    """Say whether not even root has this capability here (it is not in the bounding set)."""
    for line in status.read_text(encoding="ascii").splitlines():
        if line.startswith("CapBnd:"):
            return not int(line.split()[1], 16) >> CAPABILITIES[name] & 1
    return False


class Filling:
    """One run over a mirror.

    Args:
        lock: the lock file.
        place: the cache.
        source: auto, upstream or go.
        arch: amd64 or arm64; None for this machine's.
        progress: told what happens.
        rebuild: make everything again.
        resolves: says whether host names resolve; tests hand in their own.
    """

    def __init__(
        self,
        lock: Lock,
        place: cache.Cache,
        source: SourceChoice,
        arch: str | None,
        progress: Progress,
        rebuild: bool = False,
        resolves: collections.abc.Callable[[set[str]], bool] = download.resolves,
    ) -> None:
        self.lock = lock
        self.place = place
        self.arch = arch if arch is not None else native_arch()
        self.source = source
        self.progress = progress
        self.rebuild = rebuild
        self._resolves = resolves
        self._maker = make.Maker(lock, place, self.arch, rebuild)

    def run(
        self, names: collections.abc.Collection[str] | None = None, sets: collections.abc.Collection[str] = ()
    ) -> list[Result]:
        """Bring the mirror to what the lock file says.

        Args:
            names: items to look at (see ``Lock.select``); None for all that this machine needs.
            sets: without names: sets of further versions that are wanted too.

        Returns:
            One result an item, in the order of the lock file. Items that fail do not stop the others.

        Raises:
            CommandError: the run cannot begin: unknown name, digest not pinned, tools missing (exit 2).
        """
        if names is not None:
            items = self.lock.select(names)
        else:
            items = [item for item in self.lock.needed(sets) if self._needed(item)]
        chosen: tuple[recipes.Source, ...] = ("upstream", "go") if self.source == "auto" else (self.source,)
        allowed: tuple[recipes.Source, ...] = (*chosen, *recipes.OWN)
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            try:
                whole = dict(
                    zip(items, pool.map(lambda item: self._is_whole(item, allowed), items), strict=True)
                )
                there = [item for item in items if whole[item]]
                results = {item.key: self._report(item, "skip", "already in the mirror") for item in there}
                plan = self._plan([item for item in items if not whole[item]])
                self._check_tools(plan)
                work = {pool.submit(self._step, item, source): item for item, source in plan.items()}
                waiting: set[concurrent.futures.Future[Result]] = set(work)
                while waiting:
                    # Not for ever: a signal that comes just before a wait begins is seen when the wait ends.
                    done, waiting = concurrent.futures.wait(
                        waiting, AWAKE_S, concurrent.futures.FIRST_COMPLETED
                    )
                    results.update({work[future].key: future.result() for future in done})
            except KeyboardInterrupt:
                # Before the pool is left: leaving it waits for its threads.
                pool.shutdown(wait=False, cancel_futures=True)
                self._maker.stop()
                raise
        return [results[item.key] for item in items]

    def _needed(self, item: File | Image) -> bool:
        if (
            isinstance(item, File)
            and not (item.url or recipes.own_source(item))
            and self.source == "upstream"
        ):
            return False
        capability = item.only_without_capability if isinstance(item, File) else ""
        return not capability or lacks_capability(capability)

    def _plan(self, items: list[File | Image]) -> dict[File | Image, recipes.Source]:
        """Choose a source for each item, and refuse what no source allowed can provide.

        Programs in Python and systems have one source each, whatever is chosen for the others.
        """
        plan = {item: source for item in items if (source := recipes.own_source(item))}
        return {**plan, **self._plan_others([item for item in items if item not in plan])}

    def _plan_others(self, items: list[File | Image]) -> dict[File | Image, recipes.Source]:
        if not items:
            return {}
        if self.source != "auto":
            self._refuse(items, self.source)
            return dict.fromkeys(items, self.source)
        online = self._resolves(upstream_hosts(items))
        self.progress(
            "source",
            "done",
            "upstream: its names resolve"
            if online
            else "go: upstream's names do not resolve, building from modules",
        )
        plan: dict[File | Image, recipes.Source] = {}
        for item in items:
            buildable = bool(recipes.from_go(item, self.lock, self.arch)) and self.arch == native_arch()
            pinned = bool(recipes.from_upstream(item, self.arch))
            plan[item] = "upstream" if (online and pinned) or not buildable else "go"
        self._refuse([item for item, source in plan.items() if source == "upstream"], "upstream")
        return plan

    def _refuse(self, items: list[File | Image], source: recipes.Source) -> None:
        if source == "upstream":
            unpinned = [item.key for item in items if not recipes.from_upstream(item, self.arch)]
            if unpinned:
                raise CommandError(
                    f"no digest is pinned for {self.arch} of: {', '.join(unpinned)}",
                    f"Pin what upstream publishes now, then review the change of {self.lock.path.name}: "
                    f"ironspan artifacts pin --arch {self.arch} {' '.join(unpinned)}",
                    Exit.BAD_INPUT,
                )
            return
        if self.arch != native_arch():
            raise CommandError(
                f"the source `go` builds for this machine's {native_arch()}, not for {self.arch}",
                "Run it on such a machine, or use `ironspan artifacts fetch`.",
                Exit.BAD_INPUT,
            )
        without = [item.key for item in items if not recipes.from_go(item, self.lock, self.arch)]
        if without:
            raise CommandError(
                f"the lock file has no `go` recipe for: {', '.join(without)}",
                f"Download them: ironspan artifacts fetch {' '.join(without)}",
                Exit.BAD_INPUT,
            )

    def _check_tools(self, plan: dict[File | Image, recipes.Source]) -> None:
        made = [item for item, source in plan.items() if source == "go"]
        names = sorted({name for item in made for name in item.components()})
        bases = any(isinstance(item, Image) and item.base for item in made)
        if "debian" in plan.values():
            system.require()
        if names or bases:
            toolchain.require([self.lock.components[name] for name in names], bases)

    def _is_whole(self, item: File | Image, allowed: tuple[recipes.Source, ...]) -> bool:
        if self.rebuild:
            return False
        entry = recipes.entry_of(item, index.load(self.place.index_path), self.arch)
        return (
            entry is not None
            and recipes.is_current(item, entry, allowed, self.lock, self.arch)
            and not recipes.damage(entry, self.place)
        )

    def _step(self, item: File | Image, source: recipes.Source) -> Result:
        """Make or download one item; two runs never work on the same one at once."""

        def say(detail: str) -> None:
            self.progress(item.key, "start", detail)

        try:
            with self.place.locked(item.key, lambda: say("waiting for another run")) as scratch:
                if self._is_whole(item, (source,)):
                    return self._report(item, "skip", "made by another run")
                if self.place.stopping.is_set():
                    raise KeyboardInterrupt
                entry = self._maker.make(item, source, scratch, say)
                index.record(self.place, [entry])
                self.place.discard(scratch)
        except CommandError as error:
            return self._report(item, "fail", f"{error.message}. {error.remedy}".strip())
        except (OSError, ValueError) as error:
            return self._report(item, "fail", f"{type(error).__name__}: {error}")
        return self._report(item, "done", f"{source}, {cache.readable_size(entry.size)}")

    def _report(self, item: File | Image, state: str, detail: str) -> Result:
        self.progress(item.key, state, detail)
        return Result(item.key, state, detail)
